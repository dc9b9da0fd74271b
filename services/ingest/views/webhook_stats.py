"""How an endpoint does, out of what each pool counts of it. Pure."""

from collections import Counter
from collections.abc import Sequence

from contracts.backfills import Backfill
from contracts.deliveries import BUCKETS_MS, FAILED, EndpointRow
from contracts.endpoints import Endpoint
from contracts.times import instant
from services.ingest.views.body_lines import JsonObject

HOUR_MS = 3_600_000
WINDOW_HOURS = 24
P95 = 0.95


def stats_view(endpoint: Endpoint, rows: Sequence[EndpointRow], now_ms: int) -> JsonObject:
    """Return the figures of all pools together; the p95 is the upper bound of the bucket it lies in."""
    attempts = _attempts(rows, now_ms)
    failed = attempts.pop(FAILED, 0)
    delivered = attempts.total()
    failing = [row for row in rows if row.row]
    opened = [row for row in rows if row.is_open]
    return {
        "object": "webhook_endpoint_stats",
        "endpointId": endpoint.id,
        "windowHours": WINDOW_HOURS,
        "attempts": delivered + failed,
        "delivered": delivered,
        "failed": failed,
        "successRate": None if not delivered + failed else round(delivered / (delivered + failed), 4),
        "p95Ms": p95_ms(attempts),
        "consecutiveFailures": max((row.row for row in failing), default=0),
        "failingSince": _instant(min((row.since_ms for row in failing), default=0)),
        "lastSuccessAt": _instant(max((row.ok_ms for row in rows), default=0)),
        "circuit": "open" if opened else "closed",
        "nextAttemptAfter": _instant(max((row.gate_ms for row in rows if row.gate_ms > now_ms), default=0)),
        "waiting": sum(row.waiting for row in rows),
        "inFlight": sum(row.in_flight for row in rows),
        "givenUpOrHeld": sum(row.dead for row in rows),
        "oldestDueAt": _instant(min((row.oldest_due_ms for row in rows if row.oldest_due_ms), default=0)),
    }


def p95_ms(buckets: Counter[str]) -> int | None:
    """Return the bound below which 95 of 100 attempts stay; None without any, or where that is above all bounds.

    >>> p95_ms(Counter({"25": 94, "50": 5, "inf": 1})), p95_ms(Counter())
    (50, None)
    """
    needed, seen = P95 * buckets.total(), 0
    for bound in BUCKETS_MS:
        seen += buckets[str(bound)]
        if seen and seen >= needed:
            return bound
    return None


def backfill_view(backfills: Sequence[Backfill]) -> list[JsonObject]:
    """Return the backfills of an endpoint, each over all pools."""
    of_one: dict[str, list[Backfill]] = {}
    for backfill in backfills:
        of_one.setdefault(backfill.id, []).append(backfill)
    return [_backfill(parts) for parts in of_one.values()]


def _backfill(parts: Sequence[Backfill]) -> JsonObject:
    first = parts[0]
    return {
        "id": first.id,
        "since": instant(first.since_ms),
        "until": instant(first.until_ms),
        "askedAt": instant(first.asked_ms),
        "planned": sum(part.planned for part in parts),
        "state": "completed" if all(part.done_ms for part in parts) else "in_progress",
    }


def _attempts(rows: Sequence[EndpointRow], now_ms: int) -> Counter[str]:
    oldest = now_ms // HOUR_MS - WINDOW_HOURS
    counts: Counter[str] = Counter()
    for row in rows:
        for hour, buckets in row.hours.items():
            if hour > oldest:
                counts.update(buckets)
    return counts


def _instant(at_ms: int | None) -> str | None:
    return instant(at_ms or None)
