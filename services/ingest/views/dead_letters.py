"""Dead letters and operations on them as the operator's API shows them. Pure."""

from contracts.dead_letters import DeadLetter, LetterFilter, Operation
from contracts.times import instant
from services.ingest.views.body_lines import JsonObject

SAMPLE = 10


def letter_view(pool: str, letter: DeadLetter) -> JsonObject:
    """Return one as its list shows it."""
    return {
        "id": letter.id,
        "object": "dead_letter",
        "pool": pool,
        "tenantId": letter.tenant_id,
        "model": letter.model,
        "code": letter.code,
        "failedAt": instant(letter.failed_ms),
        "createdAt": instant(letter.created_ms),
        "attempts": letter.attempt,
        "run": letter.run,
        "contentErased": not letter.has_body,
    }


def filter_view(wanted: LetterFilter) -> JsonObject:
    """Return what was asked for; null: any."""
    return {
        "pool": wanted.pool or None,
        "tenantId": wanted.tenant_id or None,
        "model": wanted.model or None,
        "code": wanted.code or None,
        "since": instant(wanted.since_ms or None),
        "until": instant(wanted.until_ms or None),
    }


def operation_view(operation: Operation) -> JsonObject:
    """Return an operation and how far it is."""
    state = "stopped" if operation.is_stopped else "completed" if operation.done_ms else "in_progress"
    left = None if operation.ids is None else len(operation.ids) + len(operation.hand) + len(operation.later)
    return {
        "id": operation.id,
        "object": "operation",
        "verb": operation.verb,
        "state": state,
        "dryRun": False,
        "filter": filter_view(operation.wanted) if operation.ids is None else None,
        "idsLeft": left,
        "ratePerSecond": operation.rate,
        "matched": operation.done + operation.deferred + operation.failed,
        "done": operation.done,
        "deferred": operation.deferred,
        "failed": operation.failed,
        "failures": [{"id": job_id, "code": code} for job_id, code in operation.failures],
        "erased": None,
        "sample": [],
        "hasMore": False,
        "nextCursor": None,
        "reason": operation.reason,
        "by": operation.by,
        "askedAt": instant(operation.asked_ms or None),
        "endedAt": instant(operation.done_ms or None),
    }


def count_view(operation: Operation, found: list[DeadLetter], cursor: str | None) -> JsonObject:
    """Return what a dry run found; while `hasMore`, call again with `nextCursor`."""
    return operation_view(operation) | {
        "id": None,
        "state": "completed" if cursor is None else "in_progress",
        "dryRun": True,
        "idsLeft": None,
        "matched": len(found),
        "erased": sum(not letter.has_body for letter in found),
        "sample": [letter.id for letter in found[:SAMPLE]],
        "hasMore": cursor is not None,
        "nextCursor": cursor,
    }
