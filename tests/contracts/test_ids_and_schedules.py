"""Ids, positions, retry schedules, settings: the small languages everything else is written in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import ids
from contracts.errors import ConfigError
from contracts.positions import BadPosition, Position, entry_key, parse_position
from contracts.retry import Backoff, Schedule, parse_delays
from contracts.settings import load_settings

MS = st.integers(min_value=0, max_value=2**47)
RANDOM = st.integers(min_value=0, max_value=2**80 - 1)


@given(MS, MS, RANDOM, RANDOM)
def test_job_ids_sort_by_time_and_carry_their_pool(early: int, late: int, a: int, b: int) -> None:
    first, second = ids.mint_job_id(early, a, "aa"), ids.mint_job_id(late, b, "bc")

    assert ids.parse_job_id(first) == first
    assert ids.pool_code_of(second) == "bc"
    assert (first < second) == ((early, a) < (late, b)) or (early, a) == (late, b)


@given(MS, RANDOM, st.integers(1, 10**6))
def test_every_derived_id_names_its_job(ms: int, random_bits: int, number: int) -> None:
    job = ids.mint_job_id(ms, random_bits, "zz")
    derived = (
        ids.event_id(job, number),
        ids.artifact_id(job, number, 0),
        ids.preview_id(job),
        ids.delivery_id(job, number, "anon", 0),
    )

    assert [ids.job_of(each) for each in derived] == [job] * 4
    assert all("." not in each for each in derived)


@pytest.mark.parametrize("text", ["", "job_x", "job_" + "i" * 26 + "aa", "evt_1", "job_../../x", "art_" + "0" * 200])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ids.BadId):
        ids.job_of(text)


@pytest.mark.parametrize("text", ["t_a{b}", "t_*", "t_a\n", "t_" + "a" * 300, "a", "t_A", "t_a:b"])
def test_a_tenant_id_cannot_break_a_key(text: str) -> None:
    """Field case 7: no key of the store contains raw text of a user."""
    assert not ids.is_tenant_id(text)


def test_pool_codes_are_given_in_order_and_run_out_loudly() -> None:
    assert len({ids.pool_code(n) for n in range(676)}) == 676
    with pytest.raises(ids.BadId):
        ids.pool_code(676)


def test_positions_read_back_and_compare_by_number() -> None:
    position = Position("aa", 1, "1764457200123-0")

    assert parse_position(str(position)) == position
    assert entry_key("10-2") > entry_key("9-10")
    with pytest.raises(BadPosition):
        parse_position("aa.1.nonsense")


@given(st.integers(-5, 10**7), st.floats(0, 1, exclude_max=True))
def test_backoff_is_bounded_for_any_attempt(attempt: int, chance: float) -> None:
    """Field case 33: no overflow, capped, spread."""
    delay = Backoff(base_ms=1_000, cap_ms=60_000).delay_ms(attempt, chance)

    assert 800 <= delay <= 72_000


@given(st.integers(1, 200))
def test_backoff_without_jitter_never_falls(attempt: int) -> None:
    backoff = Backoff(jitter_ratio=0)

    assert backoff.delay_ms(attempt, 0.3) <= backoff.delay_ms(attempt + 1, 0.9)


def test_a_schedule_ends() -> None:
    schedule = Schedule(parse_delays("0, 5,300"), jitter_ratio=0)

    assert [schedule.delay_ms(n, 0.5) for n in range(5)] == [None, 0, 5_000, 300_000, None]


@pytest.mark.parametrize("text", ["", "a", "-1", "1,99999999", "nan"])
def test_a_schedule_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_delays(text)


def test_all_faults_of_the_configuration_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(
            {"HEADRACE_WORKER__LEAS": "3", "HEADRACE_INGEST__PORT": "x", "HEADRACE_ADMIN__KEY_FILE": "/no/file"}
        )

    text = str(caught.value)
    assert all(name in text for name in ("HEADRACE_WORKER__LEAS", "HEADRACE_INGEST__PORT", "HEADRACE_ADMIN__KEY_FILE"))


def test_durations_may_carry_their_unit() -> None:
    settings = load_settings(
        {"HEADRACE_RETENTION__COMPLETED_S": "10m", "HEADRACE_WEBHOOK__SCHEDULE": "0,1", "HOME": "/"}
    )

    assert settings.retention.completed_s == 600
    assert settings.webhook.schedule == (0.0, 1.0)
