"""Dead letters and operations on them as the operator's API shows them. Pure."""

from contracts.dead_letters import DeadLetter, LetterFilter, Operation
from contracts.times import instant
from services.ingest.views.body_lines import JsonObject


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
    left = len(operation.ids) + len(operation.hand) + len(operation.later) if operation.ids is not None else None
    return {
        "id": operation.id,
        "object": "operation",
        "verb": operation.verb,
        "state": state,
        "filter": filter_view(operation.wanted) if operation.ids is None else None,
        "idsLeft": left,
        "ratePerSecond": operation.rate,
        "done": operation.done,
        "deferred": operation.deferred,
        "failed": operation.failed,
        "failures": [{"id": job_id, "code": code} for job_id, code in operation.failures],
        "reason": operation.reason,
        "by": operation.by,
        "askedAt": instant(operation.asked_ms),
        "endedAt": instant(operation.done_ms or None),
    }


def count_view(verb: str, found: list[DeadLetter], cursor: str | None, sample: int) -> JsonObject:
    """Return what a dry run found; while `hasMore`, call again with `nextCursor`."""
    return {
        "object": "operation",
        "verb": verb,
        "dryRun": True,
        "matched": len(found),
        "erased": sum(not letter.has_body for letter in found),
        "sample": [letter.id for letter in found[:sample]],
        "hasMore": cursor is not None,
        "nextCursor": cursor,
    }
