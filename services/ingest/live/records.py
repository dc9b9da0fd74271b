"""What was made of the newest entries of a pool, for all who listen to the same jobs. Pure.

Promises: an entry is folded and written down once, however many listen; MOST_KEPT are remembered. Only for listeners
who know the job right up to the entry, so that what one makes is what any other would have made.
"""

from collections import OrderedDict

from contracts.envelope import Origin
from contracts.job import JobState
from contracts.wire import Entry
from services.ingest.live.resuming import follow_on, record_of

MOST_KEPT = 1_000

Made = tuple[JobState, bytes | None]


def make(entry: Entry, before: JobState, origin: Origin) -> Made:
    """Return the job behind an entry, and the entry's record."""
    after = follow_on(before, entry)
    return after, record_of(entry, before, after, origin)


class Records:
    """One pool."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, Made] = OrderedDict()

    def make(self, entry: Entry, before: JobState, origin: Origin) -> Made:
        """Return the job behind an entry, and the entry's record, as they were made before if they were."""
        made = self._made.get(entry.position)
        if made is None:
            made = self._made[entry.position] = make(entry, before, origin)
            if len(self._made) > MOST_KEPT:
                self._made.popitem(last=False)
        return made
