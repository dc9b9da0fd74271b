"""What the frames of one attempt become in the log: progress coalesced, milestones under their names.

Pure: time comes in. Promises: progress never falls inside one attempt, at most one is kept back and it is the newest;
a milestone is never dropped. Free text of authors gets into the log only as names, phases and flat values.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from contracts import events as ev
from services.gpu_worker.process.frames import Milestone, Progress

STEP_PERCENT = 2.0  # a stored progress event is at least this far from the last one ...
QUIET_S = 2.0  # ... or this long after it
#: Milestones with an event of their own. The rest of the catalogue is not an author's to write.
AUTHORS_OWN: Final[Mapping[str, type[ev.Event]]] = {
    model.TYPE: model for model in (ev.PromptEncoded, ev.LatentsDecoded, ev.FrameRendered)
}


_NOTHING: Final = ev.JobProgress(progress=0.0)


class Telemetry:
    """The events of one attempt that wait to be written."""

    def __init__(self) -> None:
        self._events: list[ev.Event] = []
        self._newest: ev.JobProgress | None = None
        self._stored = _NOTHING
        self._stored_s = float("-inf")
        self._highest = 0.0

    def add(self, event: ev.Event) -> None:
        """Add an event of the supervisor's own, in order."""
        self._events.append(event)

    def add_milestone(self, frame: Milestone) -> None:
        self._events.append(milestone_event(frame.name, frame.data))

    def add_progress(self, frame: Progress, now_s: float) -> None:
        """Take a report; it is due at once if it says something new, otherwise only the newest is kept."""
        self._highest = max(self._highest, percent(frame))
        self._newest = ev.JobProgress(
            progress=self._highest,
            step=_whole(frame.done),
            total_steps=_whole(frame.total),
            phase=_harmless(frame.phase),
        )
        if self._is_news(self._newest, now_s):
            self._events.append(self._newest)
            self._stored, self._stored_s, self._newest = self._newest, now_s, None

    @property
    def is_due(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._events)

    def take(self) -> list[ev.Event]:
        """Return what is due and forget it."""
        due, self._events = self._events, []
        return due

    def put_back(self, events: Sequence[ev.Event]) -> None:
        """Undo a `take`: nothing of it was written."""
        self._events[:0] = events

    @property
    def step(self) -> int | None:
        """The last step that was reported, stored or not."""
        return (self._newest or self._stored).step

    @property
    def phase(self) -> str | None:
        """The last phase that was stored."""
        return self._stored.phase

    def _is_news(self, progress: ev.JobProgress, now_s: float) -> bool:
        further = progress.progress - self._stored.progress
        whole = progress.progress >= 100 > self._stored.progress
        return further >= STEP_PERCENT or whole or progress.phase != self._stored.phase or self._is_overdue(now_s)

    def _is_overdue(self, now_s: float) -> bool:
        return now_s - self._stored_s >= QUIET_S


def percent(frame: Progress) -> float:
    """Return how far the work is, 0 to 100.

    >>> percent(Progress("job_1", 1, 3, 8, None, {})), percent(Progress("job_1", 1, 3, None, None, {}))
    (37.5, 0.0)
    """
    if frame.done is None or not frame.total or frame.total < 0:
        return 0.0
    return round(min(100.0, max(0.0, 100.0 * frame.done / frame.total)), 2)


def milestone_event(name: str, data: Mapping[str, Any]) -> ev.Event:
    """Return the milestone's own event, or `milestone.reached` if it has none or its data does not fit."""
    model = AUTHORS_OWN.get(name)
    if model is not None:
        try:
            return model.model_validate(data)
        except ValidationError:
            pass
    flat = {key[:64]: value for key, value in data.items() if isinstance(value, str | int | float | bool | None)}
    return ev.MilestoneReached(name=name, data=flat or None)


def _whole(number: float | None) -> int | None:
    return None if number is None or not 0 <= number < 2**53 else int(number)


def _harmless(phase: str | None) -> str | None:
    # "@..." means a time in the job hash (contracts.job_changes.NOW), and "" removes the field.
    return phase.lstrip("@") or None if phase else None
