"""Limits and refusals of admission as values: which limits apply, and what a refusal means to the caller.

Promises: a tenant's own limit comes before the installation's; a full or too fast tenant is 429, a full pool 503, each
with a pause. Counting itself is one atomic step of the store.
"""

from contracts.events import TenantLimits
from contracts.settings import AdmissionSettings
from contracts.store.jobs import Limits
from contracts.store.replies import Admission, Submits
from contracts.store.words import Word
from services.ingest.edge.problems import POLICIES, Problem
from services.ingest.views.rates import SUBMIT, rate_headers

_POLICIES = {
    "tenant_jobs": ("quota_exceeded", "queuedJobs", "The tenant has as many open jobs as it may have"),
    "tenant_bytes": ("quota_exceeded", "queuedBytes", "The bodies of the tenant's open jobs are too large together"),
    "pool_jobs": ("queue_full", "poolJobs", "The pool has as many open jobs as it may have"),
    "pool_bytes": ("queue_full", "poolBytes", "The bodies of the pool's open jobs are too large together"),
}


def limits_for(tenant: TenantLimits, defaults: AdmissionSettings) -> Limits:
    """Return the limits of one admission."""
    return Limits(
        tenant_jobs=defaults.tenant_jobs if tenant.queued_jobs is None else tenant.queued_jobs,
        tenant_bytes=defaults.tenant_bytes if tenant.queued_bytes is None else tenant.queued_bytes,
        pool_jobs=defaults.pool_jobs,
        pool_bytes=defaults.pool_bytes,
        submits_per_minute=tenant.submits_per_minute,
    )


def too_fast(per_minute: int, submits: Submits) -> Problem:
    """Return the problem for one submit too many."""
    return Problem(
        "rate_limited",
        f"The tenant may submit {per_minute} jobs a minute, and twice as many at once after a pause",
        retry_after_s=submits.wait_ms / 1000,
        headers=rate_headers(TenantLimits(submits_per_minute=per_minute), submits),
        extensions={POLICIES: [SUBMIT]},
    )


def refusal(answer: Admission, queue_limit: int | None = None) -> Problem:
    """Return the problem for an admission that was not applied; `queue_limit`: the request's own."""
    if answer.word is Word.REFUSED and answer.limit == "tenant_jobs" and queue_limit is not None:
        detail = f"The tenant has {queue_limit} open jobs in this pool, and this one was to wait behind fewer"
        return Problem("quota_exceeded", detail, extensions={POLICIES: ["maxQueueLength"]})
    if answer.word is Word.REFUSED and answer.limit in _POLICIES:
        code, policy, detail = _POLICIES[answer.limit]
        return Problem(code, detail, extensions={POLICIES: [policy]})
    return Problem("log_unavailable", "The store took longer than a caller waits")
