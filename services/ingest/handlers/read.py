"""Reading one job for a caller. A job of somebody else is answered exactly as one that never was.

Promises: until the tenant is known to match, the same one call is made for every id, so neither the answer nor its
time tells whether a foreign id exists.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from contracts.errors import HeadraceError
from contracts.ids import event_id, is_job_id
from contracts.job import FIELDS, JobState, JobStatus
from contracts.job_fold import fold, from_hash
from contracts.store.jobs import History
from contracts.store.store import PoolMeta
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.events.finding import EventReader
from services.ingest.filters import JobFilter
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import BodyLines, JsonObject, read_lines
from services.ingest.views.jobs import SHOWN_EVENTS, Ending, ending_of, job_view

# Read in place of a job that is not there: reading a foreign one takes 20 microseconds, which many requests would show.
_DECOY = dict.fromkeys(FIELDS.values(), "1") | {FIELDS["status"]: JobStatus.QUEUED, "n": "1", "p": "1-0"}


@dataclass(frozen=True, slots=True)
class Shown:
    """A job that this caller may see."""

    meta: PoolMeta
    state: JobState


@dataclass(frozen=True, slots=True)
class Details:
    """A job with its body and the facts of its last events."""

    meta: PoolMeta
    state: JobState
    lines: BodyLines
    ending: Ending


class JobReader:
    """Reads through the store's one call for it."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def find(self, caller: Caller, job_id: str) -> Shown | None:
        """Return the caller's job, None when there is none."""
        shown = await self.find_any(job_id)
        return shown if shown is not None and shown.state.tenant_id == caller.tenant_id else None

    async def find_any(self, job_id: str) -> Shown | None:
        """Return a job of whichever tenant, None when there is none."""
        meta = self._context.pool_of(job_id)
        if meta is None:
            return None
        history = await self._context.within(self._context.store.jobs.history(meta.name, job_id, limit=0))
        if history is None:
            from_hash(job_id, _DECOY)
            return None
        return Shown(meta, history.state)

    async def need(self, caller: Caller, job_id: str) -> Shown:
        """Return the caller's job. Raises Problem `job_not_found`."""
        shown = await self.find(caller, job_id)
        if shown is None:
            raise job_not_found()
        return shown

    async def ids(self, caller: Caller, wanted: JobFilter, below: str, limit: int) -> list[str]:
        """Return the next ids of all pools asked about, newest first."""
        pools = [name for name in self._context.pools if wanted.pool in (None, name)]
        calls = [
            self._context.store.jobs.page(
                pool,
                caller.tenant_id,
                below=below,
                limit=limit,
                opened=wanted.wants_open,
                closed=wanted.wants_closed,
            )
            for pool in pools
        ]
        pages = await asyncio.gather(*map(self._context.within, calls))
        return sorted((job_id for page in pages for job_id in page), reverse=True)[:limit]

    async def history(self, shown: Shown, limit: int, *, after: int = 0, with_body: bool = True) -> History:
        """Read a job's newest events and its body. Raises Problem `job_not_found` when it was forgotten meanwhile."""
        call = self._context.store.jobs.history(
            shown.meta.name, shown.state.id, after=after, limit=limit, with_body=with_body
        )
        history = await self._context.within(call)
        if history is None:
            raise job_not_found()
        return history

    async def details(self, shown: Shown) -> Details:
        """Read what the job's representation needs."""
        history = await self.history(shown, SHOWN_EVENTS)
        return Details(shown.meta, history.state, read_lines(history.body), ending_of(history.entries))

    async def details_at(self, shown: Shown, sequence: int, most_events: int) -> Details:
        """Read the job as it was after event `sequence`. Raises Problem `data_erased`."""
        return _folded(shown, await self._whole(shown, most_events), sequence)

    async def details_then(self, shown: Shown, is_there: Callable[[str], bool], most_events: int) -> Details:
        """Read the job as it was when the log had the positions that `is_there`. Raises Problem."""
        history = await self._whole(shown, most_events)
        sequence = sum(is_there(entry.position) for entry in history.entries)
        if not sequence:
            raise Problem("job_not_found", "There was no such job at this instant")
        return _folded(shown, history, sequence)

    async def _whole(self, shown: Shown, most_events: int) -> History:
        history = await self.history(shown, most_events)
        if not history.complete:
            raise Problem("data_erased", "The first events of this job are no longer in the log")
        return history

    async def subscribed(self, shown: Shown) -> frozenset[str]:
        """Return the events that the job's own webhook subscribes to."""
        if shown.state.hooked is None:
            return frozenset()
        history = await self.history(shown, 0)
        return frozenset(read_lines(history.body).spec.get("webhookEvents") or ())

    async def view(self, shown: Shown) -> JsonObject:
        """Return the job's representation as it is now."""
        return self.show(await self.details(shown))

    def check_content(self, shown: Shown) -> None:
        """Raise Problem `data_erased` for a job whose content is erased."""
        if shown.state.erased_ms is not None:
            raise Problem("data_erased", "The content of the job was erased")

    def show(self, details: Details) -> JsonObject:
        """Return the representation of details that were read."""
        return job_view(details.state, details.lines, details.ending, self._context.place(details.meta))

    async def remember(self, caller: Caller, key_hash: str, job_id: str, status: str) -> None:
        """Keep the status last seen with the claim: it is all that is known once the job is forgotten."""
        try:
            await self._context.within(self._context.store.claims.done(caller.tenant_id, key_hash, job_id, status))
        except HeadraceError:
            return  # the claim keeps an older status, which was true when it was seen


def _folded(shown: Shown, history: History, sequence: int) -> Details:
    entries = history.entries[:sequence]
    # What was erased later is gone from its past as well.
    state = replace(fold(shown.state.id, entries), erased_ms=shown.state.erased_ms)
    return Details(shown.meta, state, read_lines(history.body, sequence), ending_of(entries[-SHOWN_EVENTS:]))


async def missing_job(events: EventReader, caller: Caller, job_id: str) -> Problem:
    """Say of a job that is not there whether it ever was the caller's: then its events still tell."""
    if is_job_id(job_id) and await events.find(caller.tenant_id, event_id(job_id, 1)) is not None:
        return Problem("data_erased", "The job was forgotten: its retention is over")
    return job_not_found()


def job_not_found() -> Problem:
    """Return the one answer for every job the caller cannot see."""
    return Problem("job_not_found", "There is no such job, or it is not yours, or its retention is over")
