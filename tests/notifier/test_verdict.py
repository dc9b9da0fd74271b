"""What follows from an attempt."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.retry import WEBHOOK_DELAYS_S, Schedule
from services.notifier.attempt.verdict import (
    Answered,
    Delivered,
    EndpointGone,
    Exhausted,
    RetryAt,
    TransportError,
    Unanswered,
    describe,
    judge,
    parse_retry_after,
)

NOW_MS = 1_764_457_209_000
PLAN = Schedule(tuple(WEBHOOK_DELAYS_S))
CHANCES = st.floats(0, 1, exclude_max=True)


def delay_ms(outcome, attempt=1, chance=0.5, schedule=PLAN):
    verdict = judge(outcome, attempt, NOW_MS, chance, schedule)
    assert isinstance(verdict, RetryAt)
    return verdict.at_ms - NOW_MS


@pytest.mark.parametrize("attempt", [1, 10])
def test_every_status_has_one_verdict(attempt):
    """Field case 101: only 2xx is success, 410 ends the endpoint, 3xx and other 4xx follow the plan."""
    verdicts = {status: judge(Answered(status), attempt, NOW_MS, 0.0, PLAN) for status in range(100, 600)}

    assert {status for status, verdict in verdicts.items() if verdict == Delivered()} == set(range(200, 300))
    assert verdicts.pop(410) == EndpointGone("status_410")
    failed = {status: verdict for status, verdict in verdicts.items() if verdict != Delivered()}
    if attempt == 10:
        assert all(verdict == Exhausted(describe(Answered(status))) for status, verdict in failed.items())
    else:
        assert all(isinstance(verdict, RetryAt) for verdict in failed.values())


@pytest.mark.parametrize("error", list(TransportError))
def test_every_transport_error_follows_the_plan(error):
    """Field case 89: a failed connection is an attempt like any other, with its own code."""
    assert judge(Unanswered(error), 1, NOW_MS, 0.5, PLAN) == RetryAt(NOW_MS + 5000, error.value)
    assert judge(Unanswered(error), 10, NOW_MS, 0.5, PLAN) == Exhausted(error.value)


def test_a_redirect_is_a_failure_called_redirect():
    """Field case 108: never followed, recorded as `redirect`."""
    assert judge(Answered(308), 10, NOW_MS, 0, PLAN) == Exhausted("redirect")


def test_the_plan_is_walked_to_its_last_delay_and_ends_there():
    """Field case 106: exactly as many attempts as planned, the last one included."""
    gaps_s = [delay_ms(Answered(403), attempt) / 1000 for attempt in range(1, 10)]

    assert [0, *gaps_s] == list(WEBHOOK_DELAYS_S)
    assert isinstance(judge(Answered(403), 10, NOW_MS, 0.5, PLAN), Exhausted)
    assert isinstance(judge(Answered(403), 10**9, NOW_MS, 0.5, PLAN), Exhausted)


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [
        ("7", 7000),
        (formatdate(NOW_MS / 1000 + 7, usegmt=True), 7000),
        (" 7 ", 7000),
        ("-1", 5000),
        ("abc", 5000),
        ("", 5000),
        ("7.5", 5000),
        ("0", 5000),
        ("3", 5000),
        (formatdate(NOW_MS / 1000 - 60, usegmt=True), 5000),
    ],
)
@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_retry_after_is_obeyed_between_once_and_twice_the_plan(status, value, expected_ms):
    """Field case 30: seconds and dates are obeyed, odd values fall back to the plan."""
    chance = 0.0 if expected_ms != 5000 or value in {"0", "3"} or "GMT" in value else 0.5
    assert delay_ms(Answered(status, value), chance=chance) == expected_ms


@pytest.mark.parametrize("value", ["999999", "9" * 5000, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_huge_retry_after_is_clamped_and_still_spread(value):
    """Field case 30: capped; 100 deliveries do not come back in the same instant."""
    assert delay_ms(Answered(503, value), chance=0.0) == 8000
    assert 9000 < delay_ms(Answered(503, value), chance=0.999999) <= 10_000


@pytest.mark.parametrize("status", [400, 401, 404, 500, 301])
def test_other_statuses_do_not_move_the_plan(status):
    assert delay_ms(Answered(status, "9")) == 5000


@pytest.mark.parametrize("value", ["0", None])
def test_a_plan_of_zeros_keeps_a_gap(value):
    """Field case 31: Retry-After 0 makes no tight loop."""
    assert delay_ms(Answered(503, value), schedule=Schedule((0, 0, 0))) >= 1000
    assert delay_ms(Answered(503, value), schedule=Schedule((0, 0.2, 0))) >= 200


@given(st.integers(1, 9), CHANCES, st.none() | st.integers(-10, 10**9).map(str) | st.text())
def test_a_retry_lies_within_the_jitter_and_never_beyond_twice_the_plan(attempt, chance, value):
    planned_ms = WEBHOOK_DELAYS_S[attempt] * 1000
    assert 0.8 * planned_ms - 1 <= delay_ms(Answered(503, value), attempt, chance) <= 2 * planned_ms


@given(st.integers(5, 10), CHANCES)
def test_nobody_comes_back_before_the_time_they_were_told(asked_s, chance):
    assert delay_ms(Answered(429, str(asked_s)), chance=chance) >= asked_s * 1000


@given(st.text(), st.integers(0, 2**45))
def test_any_header_text_is_read_or_left_alone(value, now_ms):
    wait_ms = parse_retry_after(value, now_ms)
    assert wait_ms is None or wait_ms >= 0


@given(st.integers(), st.integers(1, 20), CHANCES, st.lists(st.floats(0, 604800), min_size=1, max_size=12))
def test_the_verdict_is_total(status, attempt, chance, delays_s):
    judge(Answered(status), attempt, NOW_MS, chance, Schedule(tuple(delays_s)))
