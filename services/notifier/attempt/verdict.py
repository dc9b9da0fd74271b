"""What follows from one delivery attempt: delivered, tried again later, given up, or the endpoint is gone.

Promises: total over every status and every transport error; only 2xx is success; the plan of attempts is a
list of delays, one per attempt, and ends; `Retry-After` moves a retry only between 1x and 2x of its planned
delay, so a receiver can neither park a delivery for a year nor make a tight loop.
Does not promise: fairness between endpoints; that is the sender's.

| answer | verdict |
| --- | --- |
| 2xx | delivered |
| 410 | endpoint gone, no further attempt |
| 429, 502, 503, 504 | by plan, `Retry-After` obeyed within the clamp |
| 3xx (never followed), any other status, any transport error | by plan |
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum

from contracts.retry import Schedule
from contracts.times import ms_of

GAP_MIN_MS = 1000
RETRY_AFTER_STATUSES = frozenset({429, 502, 503, 504})
SLOW_DOWN_MAX_MS = 600_000  # a receiver may ask for a pause of its endpoint, not for its end


class TransportError(StrEnum):
    """Why no HTTP status came back; the value is a stable code, shown to the tenant."""

    DNS = "dns"
    REFUSED = "refused"
    RESET = "reset"
    TLS = "tls"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    PROTOCOL = "protocol"
    BLOCKED_ADDRESS = "blocked_address"
    HOST_NOT_LISTED = "host_not_listed"  # nothing was sent: the operator allows the tenant other hosts only
    PROXY = "proxy"  # nothing was sent: the operator's own proxy did not work
    UNSIGNED = "unsigned"  # nothing was sent: the tenant has no secret that can sign


OURS = frozenset({TransportError.PROXY, TransportError.UNSIGNED})  # failures that say nothing of the receiver


@dataclass(frozen=True, slots=True)
class Answered:
    """The receiver answered with a status; `retry_after` is the raw header."""

    status: int
    retry_after: str | None = None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The attempt ended without a status."""

    error: TransportError


Outcome = Answered | Unanswered


@dataclass(frozen=True, slots=True)
class Delivered:
    """Nothing more to do."""


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Try again, not before this time."""

    at_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The last planned attempt failed: dead letter."""

    why: str


@dataclass(frozen=True, slots=True)
class EndpointGone:
    """The receiver said 410: this endpoint wants nothing any more."""

    why: str


Verdict = Delivered | RetryAt | Exhausted | EndpointGone


def judge(outcome: Outcome, attempt: int, now_ms: int, chance: float, schedule: Schedule) -> Verdict:
    """Judge the outcome of an attempt.

    Args:
        attempt: number of the attempt that has just ended, from 1.
        chance: in [0, 1); spreads the retry around its planned delay.

    >>> judge(Answered(500), 1, now_ms=1000, chance=0.5, schedule=Schedule((0, 5)))
    RetryAt(at_ms=6000, why='status_500')
    """
    why = describe(outcome)
    if isinstance(outcome, Answered):
        if 200 <= outcome.status <= 299:
            return Delivered()
        if outcome.status == 410:
            return EndpointGone(why)
    if attempt >= schedule.tries:
        return Exhausted(why)
    planned_ms = _planned_ms(schedule, attempt + 1)
    delay_ms = _delay_ms(planned_ms, _asked_ms(outcome, now_ms), chance, schedule.jitter_ratio)
    return RetryAt(now_ms + delay_ms, why)


def describe(outcome: Outcome) -> str:
    """Return the short stable code of an outcome: a transport error, `redirect`, or `status_<n>`."""
    match outcome:
        case Unanswered(error):
            return error.value
        case Answered(status) if 300 <= status <= 399:
            return "redirect"
        case Answered(status):
            return f"status_{status}"


def parse_retry_after(value: str, now_ms: int) -> int | None:
    """Return the wait in milliseconds that the header asks for, or None where it says nothing usable.

    >>> parse_retry_after("3", now_ms=0), parse_retry_after("-1", now_ms=0)
    (3000, None)
    """
    text = value.strip()
    if text.isascii() and text.isdigit():
        return int(text[:12]) * 1000
    try:
        date = parsedate_to_datetime(text)
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return max(0, ms_of(date) - now_ms)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def slow_down_ms(outcome: Outcome, now_ms: int) -> int:
    """Return for how long the endpoint asks to be left alone, by `Retry-After`; 0 when it does not.

    >>> slow_down_ms(Answered(429, "3"), now_ms=0), slow_down_ms(Answered(500, "3"), now_ms=0)
    (3000, 0)
    """
    return min(_asked_ms(outcome, now_ms) or 0, SLOW_DOWN_MAX_MS)


def _asked_ms(outcome: Outcome, now_ms: int) -> int | None:
    if not isinstance(outcome, Answered) or outcome.retry_after is None:
        return None
    if outcome.status not in RETRY_AFTER_STATUSES:
        return None
    return parse_retry_after(outcome.retry_after, now_ms)


def _planned_ms(schedule: Schedule, attempt: int) -> int:
    """Return the delay before a retry without jitter: at least a second or the operator's own shortest delay.

    A plan of `0,0,0` must not become a tight loop.
    """
    gap_min_ms = min([GAP_MIN_MS, *(round(delay_s * 1000) for delay_s in schedule.delays_s if delay_s > 0)])
    return max(round(schedule.delays_s[attempt - 1] * 1000), gap_min_ms)


def _delay_ms(planned_ms: int, asked_ms: int | None, chance: float, ratio: float) -> int:
    """Spread the retry around the plan, or upwards from what was asked for; never above 2x the plan."""
    if asked_ms is None:
        return round(planned_ms * (1 - ratio + 2 * ratio * chance))
    longest_ms = 2 * planned_ms
    # Without this spread a thousand deliveries that were all told "a day" would come back in one instant.
    earliest_ms = max(asked_ms, planned_ms) if asked_ms <= longest_ms else longest_ms * (1 - ratio)
    latest_ms = min(earliest_ms * (1 + ratio), longest_ms)
    return round(earliest_ms + (latest_ms - earliest_ms) * chance)
