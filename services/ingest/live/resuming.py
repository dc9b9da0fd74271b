"""What somebody who comes back to a job has missed. Pure.

Promises: what is returned has no hole behind the place that was named; where that cannot be shown from the events
there are, the answer is None, and a gap must be told.
"""

from collections.abc import Sequence
from dataclasses import replace

import orjson

from contracts.envelope import Origin, event_view
from contracts.errors import Corrupt
from contracts.job import JobState
from contracts.job_fold import evolve
from contracts.positions import Position
from contracts.store.jobs import History
from contracts.wire import Entry
from services.ingest.live.subscription import PREVIEW


def missed(history: History, place: Position, code: str, epoch: int) -> Sequence[Entry] | None:
    """Return the events behind `place`, None when it is no place of this job that is still known."""
    if (place.pool_code, place.epoch) != (code, epoch):
        return None
    entries = history.entries
    if place.entry == history.state.position:
        return ()
    if entries and entries[0].previous == place.entry:
        return entries
    for number, entry in enumerate(entries, 1):
        if entry.position == place.entry:
            return entries[number:]
    return None


def state_before(history: History, entries: Sequence[Entry]) -> JobState:
    """Return the job as it was before these last events of it, as far as what is left of its log tells."""
    if not entries:
        return history.state
    earlier = history.entries[: len(history.entries) - len(entries)]
    state = JobState(history.state.id, tenant_id=history.state.tenant_id)
    if not history.complete:
        state = replace(history.state, sequence=earlier[0].sequence - 1 if earlier else entries[0].sequence - 1)
    for entry in earlier:
        state = follow_on(state, entry)
    return state


def follow_on(state: JobState, entry: Entry) -> JobState:
    """Fold one more event; previews may be missing before it, and what does not fit moves the place only."""
    try:
        return evolve(replace(state, sequence=entry.sequence - 1), entry)
    except Corrupt:
        return replace(state, sequence=entry.sequence, position=entry.position)


def record_of(entry: Entry, before: JobState, after: JobState, origin: Origin) -> bytes | None:
    """Return an event as streams tell it; None for one whose data is no JSON, which no reader can tell more of."""
    try:
        return orjson.dumps(event_view(entry, before, after, origin))
    except Corrupt:
        return None


def newest_preview_only(entries: Sequence[Entry]) -> list[Entry]:
    """Return the events without the previews that a newer one has replaced."""
    last = max((entry.sequence for entry in entries if entry.type == PREVIEW), default=0)
    return [entry for entry in entries if entry.type != PREVIEW or entry.sequence == last]
