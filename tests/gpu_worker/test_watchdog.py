"""The two clocks of an attempt."""

from hypothesis import given
from hypothesis import strategies as st

from services.gpu_worker.slots.outcome import Stop
from services.gpu_worker.slots.watchdog import Limits, deadline

SECONDS = st.floats(0.001, 1e6)
MAYBE = st.one_of(st.none(), SECONDS)


@given(MAYBE, MAYBE, SECONDS, SECONDS)
def test_the_nearer_clock_is_the_deadline(
    timeout_s: float | None, silence_s: float | None, begun_s: float, heard_after_s: float
) -> None:
    heard_s = begun_s + heard_after_s
    due = deadline(Limits(timeout_s, silence_s), begun_s, heard_s)
    ends = {Stop.TIMEOUT: timeout_s and begun_s + timeout_s, Stop.SILENCE: silence_s and heard_s + silence_s}
    known = {stop: end for stop, end in ends.items() if end}
    if not known:
        assert due is None
        return
    assert due is not None
    assert due[0] == min(known.values()) == known[due[1]]


@given(SECONDS, SECONDS, SECONDS)
def test_progress_never_moves_a_deadline_forward(timeout_s: float, silence_s: float, later_s: float) -> None:
    limits = Limits(timeout_s, silence_s)
    before, after = deadline(limits, 0, 0), deadline(limits, 0, later_s)
    assert before is not None
    assert after is not None
    assert before[0] <= after[0] <= timeout_s
