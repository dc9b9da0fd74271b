"""classify is total: every combination of last frame, exit status and stop reason has one sensible outcome."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gpu_worker.process.frames import Cancelled, Done, Failed, LoadFailed
from services.gpu_worker.slots.outcome import LAST_WORDS_OF_OOM, Outcome, Stop, Verdict, classify

DONE = Done("job_1", 1, {"x": 1}, 5.0, 0)
FRAMES = (
    None,
    DONE,
    Cancelled("job_1", 1, 5.0),
    Failed("job_1", 1, "internal", "boom", True, 5.0, None, None),
    Failed("job_1", 1, "rate_limited", "429", True, 5.0, 3, "pinecone"),
    LoadFailed("model_load_failed", "no weights"),
    LoadFailed("out_of_memory", "MemoryError", {"requested": 5}),
    Failed("job_1", 1, "out_of_memory", "boom", True, 5.0, None, None, memory={"requested": 5, "free": 1}),
    Failed("job_1", 1, "child_crashed", "boom", True, 5.0, None, None, lost=True),
    Failed("job_1", 1, "device_unavailable", "boom", True, 5.0, None, None, lost=True),
)
CODES = {
    "internal", "rate_limited", "model_load_failed", "execution_timeout", "silence_timeout", "child_crashed",
    "child_exited", "killed", "host_out_of_memory", "out_of_memory", "device_unavailable",
}  # fmt: skip


@given(
    st.sampled_from(FRAMES),
    st.one_of(st.none(), st.integers(-70, 255)),
    st.one_of(st.none(), st.sampled_from(Stop)),
    st.booleans(),
)
def test_every_combination_has_one_outcome(last, exit_status, stop, host_oom) -> None:  # type: ignore[no-untyped-def]
    outcome = classify(last, exit_status, stop, host_oom)
    assert (outcome.verdict is Verdict.FENCED) == (stop is Stop.FENCED)
    assert (outcome.verdict is Verdict.FAILED) <= (outcome.code in CODES)
    assert (outcome.verdict is Verdict.CANCELLED) == (outcome.how is not None)
    if stop is not Stop.FENCED and last is DONE:
        assert outcome.verdict is Verdict.COMPLETED
    if stop is Stop.CANCEL and last is not DONE:
        assert outcome.verdict is Verdict.CANCELLED
    assert not re.search(r"\n|Traceback", outcome.message)


@pytest.mark.parametrize(
    ("exit_status", "host_oom", "code"),
    [
        (2, False, "child_exited"),
        (0, False, "child_exited"),
        (-11, False, "child_crashed"),
        (-15, False, "child_crashed"),
        (-9, False, "killed"),
        (-9, True, "host_out_of_memory"),
        (-64, False, "child_crashed"),
    ],
)
def test_a_death_without_words_is_told_by_its_status(exit_status: int, host_oom: bool, code: str) -> None:
    """Field case 44: the kernel's OOM killer is told from a user's kill and from a device's out-of-memory."""
    outcome = classify(None, exit_status, None, host_oom)
    assert (outcome.code, outcome.killed_child) == (code, True)


def test_our_own_kill_is_never_counted_against_the_job() -> None:
    for stop in (Stop.CANCEL, Stop.TIMEOUT, Stop.SILENCE, Stop.HAND_BACK):
        assert not classify(None, -9, stop).killed_child


def test_a_fence_outranks_a_cancel_and_a_cancel_all_else() -> None:
    order = [Stop.FENCED, Stop.CANCEL]
    for one, other in itertools.permutations(Stop, 2):
        strong = one in order and (other not in order or order.index(one) < order.index(other))
        assert one.outranks(other) is strong
    assert all(stop.outranks(None) for stop in Stop)


def test_a_result_that_was_finished_before_the_stop_took_effect_is_kept() -> None:
    assert classify(DONE, None, Stop.TIMEOUT) == Outcome(Verdict.COMPLETED, result={"x": 1}, run_ms=5.0)


def test_four_ways_to_die_have_four_codes_with_status_or_signal() -> None:
    """Field case 61: an exit, a kill, a segfault and a framework's out-of-memory are never mixed up."""
    oom = Failed("job_1", 1, "out_of_memory", "OutOfMemoryError: CUDA out of memory", True, 5.0, None, None)
    ends = [classify(None, 2, None), classify(None, -9, None), classify(None, -11, None), classify(oom, None, None)]

    assert [(end.code, end.exit_code, end.signal, end.killed_child) for end in ends] == [
        ("child_exited", 2, None, True), ("killed", None, 9, True), ("child_crashed", None, 11, True),
        ("out_of_memory", None, None, False),
    ]  # fmt: skip


def test_only_the_end_that_a_library_brings_about_with_its_words_is_out_of_memory() -> None:
    said = f"loading\n{LAST_WORDS_OF_OOM[-6]}\n  what():  std::bad_alloc\n"
    ends = [classify(None, status, None, False, words) for status, words in ((-6, said), (-6, ""), (-11, said))]
    assert [end.code for end in ends] == ["out_of_memory", "child_crashed", "child_crashed"]
    ends = [classify(None, 127, None, False, words) for words in (LAST_WORDS_OF_OOM[127], said)]
    assert [end.code for end in ends] == ["out_of_memory", "child_exited"]
    assert classify(None, -6, Stop.TIMEOUT, False, said).code == "execution_timeout"


def test_a_process_lost_on_the_device_is_the_jobs_doing_and_one_lost_with_the_device_is_not() -> None:
    crash = Failed("job_1", 1, "child_crashed", "illegal memory access", True, 5.0, None, None, lost=True)
    hardware = Failed("job_1", 1, "device_unavailable", "uncorrectable ECC error", True, 5.0, None, None, lost=True)

    assert (classify(crash, None, None).killed_child, classify(hardware, None, None).killed_child) == (True, False)
    assert all(classify(frame, None, None).retryable for frame in (crash, hardware))
