"""What frames become in the log."""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from contracts import events as ev
from contracts.store import Word
from contracts.store.attempts import Attempt
from contracts.store.replies import Reply
from services.gpu_worker.process.frames import Milestone, Progress
from services.gpu_worker.telemetry import QUIET_S, Telemetry, milestone_event
from services.gpu_worker.writer import AttemptWriter
from tests.gpu_worker.rig import PATIENCE_S

NUMBERS = st.one_of(st.none(), st.floats(-10, 1e6), st.integers(-10, 10**6))


def report(done: float | None, total: float | None = 100, phase: str | None = None) -> Progress:
    return Progress("job_1", 1, done, total, phase, {})


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.sampled_from([None, "a", "b", "@x"]), st.floats(0, 5))))
def test_progress_never_falls_and_stays_between_0_and_100(reports: list[tuple[float, float, str, float]]) -> None:
    telemetry, now_s, seen = Telemetry(), 0.0, []
    for done, total, phase, pause_s in reports:
        now_s += pause_s
        telemetry.add_progress(report(done, total, phase), now_s)
        seen += [event.progress for event in telemetry.take() if isinstance(event, ev.JobProgress)]
    assert seen == sorted(seen)
    assert all(0 <= progress <= 100 for progress in seen)


def test_a_long_row_of_reports_is_a_short_row_of_events() -> None:
    telemetry = Telemetry()
    for done in range(100_001):
        telemetry.add_progress(report(done, 100_000), now_s=done * 1e-6)
    events = telemetry.take()
    assert len(events) <= 52
    assert isinstance(events[-1], ev.JobProgress)
    assert events[-1].progress == 100


def test_a_new_phase_and_a_long_silence_are_news() -> None:
    telemetry = Telemetry()
    telemetry.add_progress(report(1, phase="encoding_prompt"), 0.0)
    telemetry.add_progress(report(1, phase="denoising"), 0.1)
    telemetry.add_progress(report(1.5, phase="denoising"), 0.2)
    telemetry.add_progress(report(1.6, phase="denoising"), 0.2 + QUIET_S)
    events = [event for event in telemetry.take() if isinstance(event, ev.JobProgress)]
    assert [(event.phase, event.progress) for event in events] == [
        ("encoding_prompt", 1),
        ("denoising", 1),
        ("denoising", 1.6),
    ]


def test_a_milestone_has_its_own_event_if_its_data_fits() -> None:
    assert milestone_event("latents.decoded", {"step": 4}) == ev.LatentsDecoded(step=4)
    assert milestone_event("frame.rendered", {"index": "x"}) == ev.MilestoneReached(
        name="frame.rendered", data={"index": "x"}
    )
    assert milestone_event("tile.done", {"n": 1, "nested": {"a": 1}}) == ev.MilestoneReached(
        name="tile.done", data={"n": 1}
    )


@given(st.sampled_from(sorted(ev.CATALOGUE)))
def test_no_author_can_write_an_event_that_is_not_an_authors(name: str) -> None:
    event = milestone_event(name, {})
    assert event.TYPE in ("milestone.reached", "prompt.encoded", "latents.decoded", "frame.rendered")


def test_what_was_not_written_comes_first_again() -> None:
    telemetry = Telemetry()
    telemetry.add_milestone(Milestone("job_1", 1, "one", {}))
    taken = telemetry.take()
    telemetry.add_milestone(Milestone("job_1", 1, "two", {}))
    telemetry.put_back(taken)
    assert [event.name for event in telemetry.take() if isinstance(event, ev.MilestoneReached)] == ["one", "two"]


class SlowStore:
    """Takes events when it is told to."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def emit(self, right: Attempt, events: Sequence[ev.Event], **options: object) -> Reply:
        self.asked.set()
        await self.answers.wait()
        self.written += [event.TYPE for event in events]
        return Reply(Word.APPLIED)


async def test_what_is_said_while_the_store_takes_the_last_words_is_not_kept_back() -> None:
    """A report that is followed by none for an hour is in the log soon, not in an hour."""
    store = SlowStore()
    writer = AttemptWriter(store, None, asyncio.Event(), lambda: None)  # type: ignore[arg-type]
    writer.telemetry.add(ev.ModelLoadStarted(model="echo@1"))
    writer.flush_soon()
    await store.asked.wait()
    writer.telemetry.add_milestone(Milestone("job_1", 1, "half.done", {}))
    writer.flush_soon()
    store.answers.set()

    async with asyncio.timeout(PATIENCE_S):
        while len(store.written) < 2:  # noqa: ASYNC110 - the stub tells nobody
            await asyncio.sleep(0.01)
    assert store.written == ["model.load_started", "milestone.reached"]
