"""A job as it was right before and right after each of its events, as far as the log still tells. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from contracts.errors import Corrupt
from contracts.job import JobState
from contracts.job_fold import evolve
from contracts.wire import Entry


@dataclass(frozen=True, slots=True)
class Moment:
    """An event of a job, and the job without it and with it."""

    entry: Entry
    before: JobState
    after: JobState


@dataclass(frozen=True, slots=True)
class Story:
    """The moments of a job by sequence. `newest`: the job as it is now; `fault`: why the moments end where they do."""

    newest: JobState
    moments: Mapping[int, Moment]
    fault: Corrupt | None = None

    def at(self, entry: Entry) -> Moment:
        """Return the job around an event; around one that the log no longer leads to, as it is now. Raises Corrupt."""
        moment = self.moments.get(entry.sequence)
        if moment is not None:
            return Moment(entry, moment.before, moment.after)
        if self.fault is not None:
            raise self.fault
        return Moment(entry, self.newest, self.newest)


def tell(start: JobState, entries: Iterable[Entry], newest: JobState) -> Story:
    """Fold events of a job that follow a known state of it."""
    state, moments = start, {}
    try:
        for entry in entries:
            after = evolve(state, entry)
            moments[entry.sequence] = Moment(entry, state, after)
            state = after
    except Corrupt as error:
        return Story(newest, moments, error)
    return Story(newest, moments)
