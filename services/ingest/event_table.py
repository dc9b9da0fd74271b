"""The rows of the route table about the event log."""

from contracts.replay_api import ReplayCreate
from services.ingest.handlers.actions import ActionHandler
from services.ingest.handlers.documents import DocumentHandlers
from services.ingest.handlers.event_export import ExportHandler
from services.ingest.handlers.events import EventHandlers
from services.ingest.handlers.replays import ReplayHandlers
from services.ingest.handlers.reproduce import ReproduceHandler
from services.ingest.handlers.retry import RetryHandler
from services.ingest.handlers.state import StateHandler
from services.ingest.routes import Parameter, Route
from services.ingest.views import replay_schemas, schemas
from services.ingest.views.operator_schemas import ActionPage
from services.ingest.views.state_schemas import StateThen

EVENT_FILTERS = (
    Parameter("jobId", "Only this job."),
    Parameter("userId", "Only jobs of this user."),
    Parameter("model", "Only jobs of this model: its name, or name@version."),
    Parameter("type", "Only these types: names or `job.*`, with commas between."),
    Parameter("after", "Only what comes after this position, in its pool."),
    Parameter("before", "Only what comes before this position, in its pool."),
    Parameter("from", "RFC 3339, included."),
    Parameter("to", "RFC 3339, not included."),
)
_OF_OPERATORS = (
    Parameter("tenantId", "Only jobs of this tenant."),
    Parameter("workerId", "Only events that name this worker."),
)
_PAGED = (
    Parameter("order", "`asc` (the default) or `desc`."),
    Parameter("limit", "Most events of one page.", kind="integer"),
    Parameter("cursor", "`nextCursor` of the page before, with the same filters."),
)
# Why a job that is asked for again, or another time, may have to wait outside like any new one.
_REFUSED = ("rate_limited", "quota_exceeded", "queue_full", "storage_full", "log_backlog", "tenant_suspended")
_STATE = (
    Parameter("at", "A time or a position, which is included; now without it."),
    Parameter("limit", "Most running jobs of one page.", kind="integer"),
    Parameter("cursor", "`nextCursor` of the page before: the next running jobs, of the same instant."),
)
_NO_STATE = ("quota_exceeded", "bad_cursor", "bad_parameter", "pool_not_found", "cursor_expired")
_WRONG = ("bad_cursor", "bad_parameter", "cursor_expired")


def event_routes(events: EventHandlers, export: ExportHandler, state: StateHandler) -> tuple[Route, ...]:
    """Return the routes that read events."""
    return (
        Route("GET", "/v1/events", events.list_events, "List events of all my jobs.", "events:read",
              reply=schemas.EventPage, problems=_WRONG, parameters=(*EVENT_FILTERS, *_PAGED)),
        Route("GET", "/v1/events/export", export.export_events, "Take events home, one JSON object a line.",
              "events:read", media_type="application/x-ndjson", problems=_WRONG,
              replies=((200, "Events, oldest first; the last line is `export.end` with count, sha256, nextCursor."),),
              parameters=(
                  *(each for each in EVENT_FILTERS if each.name != "after"),
                  Parameter("after", "Go on behind these positions, one for each pool, with commas between."),
                  Parameter("cursor", "`nextCursor` of an export with the same filters: go on behind it."),
                  Parameter("Accept-Encoding", "`gzip` compresses it.", "header"),
              )),
        Route("GET", "/v1/events/{id}", events.get_event, "Show one event.", "events:read",
              reply=schemas.EventRecord, problems=("event_not_found", "bad_parameter")),
        Route("GET", "/v1/state", state.state, "Show how my jobs stood at an instant, and on what they ran.",
              "events:read", reply=StateThen, problems=(*_NO_STATE, "job_not_found", "data_erased"),
              parameters=(*_STATE, Parameter("scope", "`tenant` (the default), `pool:<name>` or `job:<id>`."))),
        Route("GET", "/admin/v1/state", state.admin_state, "Show how all jobs stood at an instant.", "admin",
              reply=StateThen, problems=_NO_STATE,
              parameters=(*_STATE, Parameter("scope", "`tenant` (the default: all) or `pool:<name>`."))),
        Route("GET", "/admin/v1/events", events.admin_list_events, "List events of all tenants, workers and pools.",
              "admin", reply=schemas.EventPage, problems=_WRONG, parameters=(*EVENT_FILTERS, *_OF_OPERATORS, *_PAGED)),
    )  # fmt: skip


def action_routes(actions: ActionHandler) -> tuple[Route, ...]:
    """Return the route that says what operators did."""
    return (
        Route("GET", "/v1/audit/actions", actions.list_actions, "List what was done with the admin key.", "audit:read",
              reply=ActionPage, problems=("bad_cursor", "bad_parameter"),
              parameters=(
                  Parameter("actor", "Only by this key, or by `operator`."),
                  Parameter("type", "Only these types of events, with commas between."),
                  Parameter("tenantId", "Only what concerned this tenant; a tenant sees its own in any case."),
                  Parameter("from", "RFC 3339, included."),
                  Parameter("to", "RFC 3339, not included."),
                  Parameter("order", "`desc` (the default) or `asc`."),
                  *(each for each in _PAGED if each.name != "order"),
              )),
    )  # fmt: skip


def replay_routes(replays: ReplayHandlers) -> tuple[Route, ...]:
    """Return the routes that show the past as a stream."""
    one, wrong = "/v1/replays/{id}", ("replay_not_found", "bad_parameter")
    return (
        Route("POST", "/v1/replays", replays.create_replay,
              "Ask for a stretch of the past as a stream, for jobs as they were, or for waits under another policy.",
              "events:read", body=ReplayCreate, reply=replay_schemas.Replay, or_scope="admin",
              replies=((201, "Where it can be read."), (202, "It is being computed.")),
              problems=("bad_parameter", "quota_exceeded", "pool_not_found")),
        Route("GET", "/v1/replays", replays.list_replays, "List my replays that this process knows.", "events:read",
              reply=replay_schemas.ReplayPage, or_scope="admin", problems=("bad_parameter",)),
        Route("GET", one, replays.get_replay, "Show what a replay is of, and what came of it.", "events:read",
              reply=replay_schemas.Replay, or_scope="admin", problems=(*wrong, "quota_exceeded")),
        Route("DELETE", one, replays.delete_replay, "End a replay; repeating is harmless.", "events:read",
              or_scope="admin", replies=((204, "It is over, and not shown any more."),), problems=wrong),
        Route("GET", one + "/stream", replays.replay_stream, "Read a replay, as server-sent events.", "events:read",
              media_type="text/event-stream", problems=(*wrong, "cursor_expired", "quota_exceeded"),
              replies=((200, "Events, up to `end`."),),
              parameters=(
                  Parameter("after", "Go on behind this id."),
                  Parameter("Last-Event-ID", "Go on behind this id; counts before `after`.", "header"),
              )),
    )  # fmt: skip


def retry_routes(retry: RetryHandler) -> tuple[Route, ...]:
    """Return the route that runs a job again."""
    return (
        Route("POST", "/v1/jobs/{id}/retry", retry.retry, "Run a job again that failed, expired or was cancelled.",
              "jobs:write", reply=schemas.Job, replies=((202, "It is queued again."),),
              problems=("job_not_found", "bad_parameter", "not_retryable", "data_erased", *_REFUSED)),
    )  # fmt: skip


def reproduce_routes(reproduce: ReproduceHandler) -> tuple[Route, ...]:
    """Return the route that runs what a job ran, once more, as another job."""
    return (
        Route("POST", "/v1/jobs/{id}/reproduce", reproduce.reproduce, "Run a completed job's work again, as a new job.",
              "jobs:write", reply=schemas.Job,
              replies=((201, "The new job is durable."), (200, "A repeat of an Idempotency-Key.")),
              problems=(
                  "job_not_found", "bad_parameter", "not_reproducible", "data_erased", "unschedulable", "unconfirmed",
                  "missing_idempotency_key", "idempotency_mismatch", "files_unavailable", *_REFUSED,
              ),
              parameters=(
                  Parameter("Idempotency-Key", "Repeating a request with it never makes a second job.", "header"),
                  Parameter("traceparent", "Kept with the job (W3C Trace Context).", "header"),
              )),
    )  # fmt: skip


def document_routes(documents: DocumentHandlers) -> tuple[Route, ...]:
    """Return the routes of what anybody may read."""
    unchanged = ((200, "It."), (304, "It has not changed."))
    return (
        Route("GET", "/v1/event-types", documents.list_event_types, "List the types of events.",
              reply=schemas.EventTypePage, problems=("bad_parameter",)),
        Route("GET", "/v1/event-types/{type}", documents.get_event_type, "Show a type of events.",
              reply=schemas.EventTypeDetails, problems=("event_type_not_found", "bad_parameter")),
        Route("GET", "/asyncapi.json", documents.asyncapi_document, "What is streamed, as an AsyncAPI document.",
              replies=unchanged),
        Route("GET", "/docs", documents.docs, "This document as a page.", media_type="text/html", replies=unchanged),
        Route("GET", "/docs/{file}", documents.docs_file, "What the page is made of.", media_type="text/plain",
              replies=unchanged, problems=("not_found",)),
    )  # fmt: skip
