"""The route table: everything this service serves, one row each. Router, scope checks and OpenAPI are made of it."""

from contracts.admin_api import (
    AdminJobsErase,
    KeyCreate,
    TenantCreate,
    TenantPatch,
)
from contracts.api import GenerationJobData, JobBatch, JobPatch, JobsCancel, JobsErase
from services.ingest.handlers.admin import AdminHandlers
from services.ingest.handlers.batch import BatchHandler
from services.ingest.handlers.cancel import Canceller
from services.ingest.handlers.cancel_many import CancelManyHandler
from services.ingest.handlers.change import ChangeHandler
from services.ingest.handlers.erase import EraseHandlers
from services.ingest.handlers.explain import ExplainHandlers
from services.ingest.handlers.info import InfoHandlers
from services.ingest.handlers.job_list import JobListHandler
from services.ingest.handlers.jobs import JobHandlers
from services.ingest.handlers.limits import LimitsHandler
from services.ingest.handlers.logs import LogHandler
from services.ingest.handlers.submit import SubmitHandler
from services.ingest.handlers.usage import UsageHandler
from services.ingest.routes import IF_NONE_MATCH, PAGED, Parameter, Route
from services.ingest.views import erasure_schemas, schemas
from services.ingest.views import service_schemas as about

_JOB_FILTERS = (
    Parameter("status", "Repeatable.", repeats=True),
    Parameter("model", "`name` or `name@version`."),
    Parameter("userId", "Exactly this user."),
    Parameter("priority", "low, normal, high or urgent."),
    Parameter("pool", "Only this pool."),
    Parameter("createdAfter", "RFC 3339, included."),
    Parameter("createdBefore", "RFC 3339, not included."),
    Parameter("deadLettered", "true or false.", kind="boolean"),
    Parameter("q", "Beginning of the id."),
    Parameter("metadata.<key>", "Exactly this value."),
)
_ADMISSION = (
    "missing_idempotency_key", "idempotency_mismatch", "webhook_url_not_allowed", "quota_exceeded", "queue_full",
    "log_backlog", "storage_full", "tenant_suspended", "rate_limited", "unschedulable", "unconfirmed",
)  # fmt: skip
_JOB = "/v1/jobs/{id}"
_ONE_JOB = ("job_not_found", "bad_parameter")
_TENANT = "/admin/v1/tenants/{tenant}"


def submit_routes(submit: SubmitHandler, batch: BatchHandler) -> tuple[Route, ...]:
    """Return the routes that make jobs."""
    return (
        Route(
            "POST", "/v1/jobs", submit.submit, "Submit a job.", "jobs:write",
            body=GenerationJobData, reply=schemas.Job, problems=_ADMISSION,
            replies=(
                (201, "The job is durable."),
                (200, "A repeat of an Idempotency-Key or a dedup key, or the job has ended while the caller waited."),
                (202, "The job has not ended while the caller waited."),
            ),
            parameters=(
                Parameter("Idempotency-Key", "Repeating a request with it never makes a second job.", "header"),
                Parameter("Prefer", "`wait=N` (60 at most): answer when it has ended, or after N seconds.", "header"),
                Parameter("traceparent", "Kept with the job (W3C Trace Context).", "header"),
            ),
        ),
        Route(
            "POST", "/v1/jobs/batch", batch.submit_batch, "Submit up to 100 jobs, each for itself.", "jobs:write",
            body=JobBatch, reply=schemas.BatchReply, problems=("missing_idempotency_key",),
            replies=((200, "One answer for each item: 201, 200 for a repeat, or its problem."),),
            parameters=(
                Parameter("Idempotency-Key", "Each item's key is made of it and the item's index.", "header"),
                Parameter("traceparent", "Kept with each job (W3C Trace Context).", "header"),
            ),
        ),
    )  # fmt: skip


def job_routes(lists: JobListHandler, jobs: JobHandlers, logs: LogHandler) -> tuple[Route, ...]:
    """Return the routes that read jobs."""
    return (
        Route(
            "GET", "/v1/jobs", lists.list_jobs, "List jobs, newest first.", "jobs:read",
            reply=schemas.JobPage, problems=("bad_parameter", "bad_cursor"), parameters=(*_JOB_FILTERS, *PAGED),
        ),
        Route(
            "GET", _JOB, jobs.get_job, "Show a job, now or after one of its events.", "jobs:read",
            reply=schemas.Job, problems=(*_ONE_JOB, "data_erased"),
            replies=((200, "The job."), (304, "It has not changed.")),
            parameters=(
                Parameter("sequence", "Show it as it was after this event.", kind="integer"),
                Parameter("at", "Show it as it was at this time or position, which is included."),
                IF_NONE_MATCH,
            ),
        ),
        Route(
            "GET", _JOB + "/events", jobs.events, "List a job's events in order.", "events:read",
            reply=schemas.EventPage, problems=(*_ONE_JOB, "bad_cursor", "data_erased"), parameters=PAGED,
        ),
        Route(
            "GET", _JOB + "/result", jobs.result, "Show a job's result.", "jobs:read",
            reply=schemas.JobResult, problems=(*_ONE_JOB, "job_failed", "data_erased"),
            replies=((200, "The result."), (202, "There is none yet.")),
        ),
        Route(
            "GET", _JOB + "/logs", logs.logs, "Show what a job printed, or follow it as it runs.",
            "jobs:read", reply=schemas.LogPage,
            problems=(*_ONE_JOB, "bad_cursor", "files_unavailable", "quota_exceeded"),
            replies=((200, "Lines, or events."), (204, "All of it was sent before.")),
            parameters=(
                Parameter("limit", "Most lines of one page.", kind="integer"),
                Parameter("cursor", "`nextCursor` of the page before; a running job has one always."),
                Parameter("Last-Event-ID", "Go on behind this event.", "header"),
            ),
        ),
        Route(
            "GET", _JOB + "/artifacts", jobs.artifacts, "List a job's stored files.", "jobs:read",
            reply=schemas.ArtifactPage, problems=_ONE_JOB,
            parameters=(Parameter("variant", "original, thumbnail or spritesheet."),),
        ),
    )  # fmt: skip


def change_routes(
    change: ChangeHandler, canceller: Canceller, cancel_many: CancelManyHandler
) -> tuple[Route, ...]:  # fmt: skip
    """Return the routes that change jobs."""
    return (
        Route(
            "PATCH", _JOB, change.change, "Change a job that has not ended; repeating it is harmless.", "jobs:write",
            body=JobPatch, reply=schemas.Job,
            problems=(*_ONE_JOB, "already_terminal", "version_mismatch", "data_erased"),
            parameters=(Parameter("If-Match", "The ETag the job must still have.", "header"),),
        ),
        Route(
            "POST", _JOB + "/cancel", canceller.cancel, "Cancel a job; repeating it is harmless.", "jobs:write",
            reply=schemas.Job, problems=(*_ONE_JOB, "already_terminal"),
            replies=((200, "It is cancelled."), (202, "It is running and was asked to stop.")),
        ),
        Route(
            "POST", "/v1/jobs/cancel", cancel_many.cancel_jobs, "Cancel many jobs; repeating it is harmless.",
            "jobs:write", body=JobsCancel, reply=schemas.Operation, problems=("bad_cursor",),
            replies=((200, "What this call did; while `hasMore`, call again with `nextCursor`."),),
        ),
    )  # fmt: skip


def erase_routes(erase: EraseHandlers) -> tuple[Route, ...]:
    """Return the routes that take content away for good."""
    reason = (Parameter("reason", "Why; kept in the log for good, so it must name nobody."),)
    done = ((200, "Nothing of its content is left."), (202, "It is shown and sent no more; the rest is being removed."))
    wrong = ("job_not_found", "job_not_ended", "bad_parameter", "files_unavailable")
    many = ((200, "What this call did; while `hasMore`, call again with `nextCursor`."),)
    operation = erasure_schemas.ErasureOperation
    return (
        Route("DELETE", _JOB, erase.erase_job, "Erase what a job was asked and answered; repeating it is harmless.",
              "jobs:write", reply=erasure_schemas.Erasure, replies=done, problems=wrong, parameters=reason),
        Route("POST", "/v1/jobs/erase", erase.erase_user, "Erase the jobs of one end user; repeating it is harmless.",
              "jobs:write", body=JobsErase, reply=operation, replies=many, problems=("bad_cursor",)),
        Route("DELETE", "/admin/v1/jobs/{job}", erase.admin_erase_job, "Erase a job of any tenant.", "admin",
              reply=erasure_schemas.Erasure, replies=done, problems=wrong, parameters=reason),
        Route("POST", "/admin/v1/jobs/erase", erase.admin_erase_user, "Erase the jobs of one end user of a tenant.",
              "admin", body=AdminJobsErase, reply=operation, replies=many, problems=("bad_cursor",)),
    )  # fmt: skip


def explain_routes(explain: ExplainHandlers) -> tuple[Route, ...]:
    """Return the routes that the leader of a pool answers."""
    return (
        Route(
            "GET", "/v1/jobs/{id}/explain", explain.explain, "Say why a job waits, and what would have to change.",
            "jobs:read", reply=schemas.JobExplanation, problems=_ONE_JOB,
        ),
        Route(
            "GET", "/admin/v1/pools/{pool}/autoscale", explain.autoscale, "Say how many workers a pool should have.",
            "admin", reply=about.Autoscale, problems=("pool_not_found", "bad_parameter", "scheduler_unavailable"),
            parameters=(
                Parameter("targetSeconds", "In what time the waiting work should be done (60).", kind="integer"),
            ),
        ),
    )  # fmt: skip


def admin_routes(admin: AdminHandlers) -> tuple[Route, ...]:
    """Return the operator's routes."""
    made = ((201, "Created; its secret is in this answer only."),)
    return (
        Route("POST", "/admin/v1/tenants", admin.create_tenant, "Create a tenant.", "admin",
              body=TenantCreate, replies=made, reply=about.Tenant, problems=("already_exists", "version_mismatch")),
        Route("GET", "/admin/v1/tenants", admin.list_tenants, "List tenants.", "admin",
              reply=about.TenantPage, problems=("bad_cursor", "bad_parameter"), parameters=PAGED),
        Route("GET", _TENANT, admin.get_tenant, "Show a tenant.", "admin",
              reply=about.Tenant, problems=("tenant_not_found", "bad_parameter")),
        Route("PATCH", _TENANT, admin.patch_tenant, "Change a tenant.", "admin",
              body=TenantPatch, reply=about.Tenant, problems=("tenant_not_found", "version_mismatch")),
        Route("POST", _TENANT + "/keys", admin.create_key, "Create a key.", "admin",
              body=KeyCreate, replies=made, reply=about.Key, problems=("tenant_not_found", "version_mismatch")),
        Route("GET", _TENANT + "/keys", admin.list_keys, "List a tenant's keys.", "admin",
              reply=about.KeyPage, problems=("tenant_not_found", "bad_cursor", "bad_parameter"), parameters=PAGED),
        Route("GET", _TENANT + "/keys/{key}", admin.get_key, "Show a key.", "admin",
              reply=about.Key, problems=("key_not_found", "bad_parameter")),
        Route("DELETE", _TENANT + "/keys/{key}", admin.revoke_key, "Revoke a key.", "admin",
              replies=((204, "It does not work any more."),), problems=("key_not_found", "version_mismatch"),
              parameters=(Parameter("reason", "Why; kept in the log."),)),
    )  # fmt: skip


def usage_routes(usage: UsageHandler) -> tuple[Route, ...]:
    """Return the routes that say what was used."""
    asked = (
        Parameter("from", "First UTC day, such as 2026-11-01; 30 days before `to` without it."),
        Parameter("to", "The UTC day after the last; tomorrow without it."),
        Parameter("groupBy", "Which of day, tenantId, model, pool tell lines apart, with commas between."),
        Parameter("model", "Only this model: `name`, or `name@version`."),
        Parameter("format", "`csv` for CSV; so does `Accept: text/csv`."),
        *PAGED,
    )
    wrong, replies = ("bad_parameter", "bad_cursor"), ((200, "A line for each group, or CSV with a header."),)
    return (
        Route("GET", "/v1/usage", usage.usage, "Show what I used: device time, files, jobs, deliveries.", "jobs:read",
              reply=about.UsagePage, replies=replies, problems=wrong, parameters=asked),
        Route("GET", "/admin/v1/usage", usage.admin_usage, "Show what all tenants used.", "admin",
              reply=about.UsagePage, replies=replies, problems=wrong,
              parameters=(Parameter("tenantId", "Only this tenant."), *asked)),
    )  # fmt: skip


def info_routes(info: InfoHandlers, limits: LimitsHandler) -> tuple[Route, ...]:
    """Return the routes about the service itself."""
    return (
        Route("GET", "/v1/models", info.list_models, "List models.", "models:read",
              reply=about.ModelPage, problems=("bad_parameter",)),
        Route("GET", "/v1/models/{name}", info.get_model, "Show a model.", "models:read",
              reply=about.Model, problems=("model_not_found", "bad_parameter")),
        Route("GET", "/v1/limits", limits.limits, "Show my limits and their use.", "jobs:read",
              reply=about.Limits, problems=("tenant_not_found", "bad_parameter")),
        Route("GET", "/healthz", info.healthz, "Whether the process lives.", reply=about.Health),
        Route("GET", "/readyz", info.readyz, "Whether the log can be written.", reply=about.ReadyVerdict,
              replies=((200, "Ready."), (503, "Not ready, with the reason."))),
        Route("GET", "/metrics", info.metrics, "Metrics of this process.", media_type="text/plain"),
        Route("GET", "/openapi.json", info.openapi_document, "This document."),
    )  # fmt: skip
