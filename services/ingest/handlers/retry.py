"""`POST /v1/jobs/{id}/retry`: a new run of a job that ended without a result. Unlike a replay it makes work.

Promises: one run for one request, whatever happens meanwhile; attempts count on, so that fences and the names of stored
files stay unique; what has ended well, or not yet, is refused.
"""

from aiohttp import web

from contracts import events as ev
from contracts.errors import StoreUnavailable
from contracts.ids import event_id, is_job_id
from contracts.job import JobStatus
from contracts.store import Word
from contracts.store.jobs import MOST_EVENTS
from contracts.store.write import JobGuard, Write
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.events.finding import EventReader
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.read import JobReader, Shown, job_not_found
from services.ingest.minting import Mint
from services.ingest.tenancy import Caller

TRIES = 5
RETRYABLE = frozenset({JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.EXPIRED})


class RetryHandler:
    """Runs jobs again."""

    def __init__(self, context: Context, reader: JobReader, events: EventReader) -> None:
        self._context, self._reader, self._events = context, reader, events
        self._mint = Mint(context.now_ms)

    async def retry(self, request: web.Request, caller: Caller) -> web.Response:
        """Queue the job again."""
        check_query(request, frozenset())
        job_id = request.match_info["id"]
        for _ in range(TRIES):
            shown = await self._reader.find(caller, job_id)
            if shown is None:
                raise await self._gone(caller, job_id)
            if shown.state.status not in RETRYABLE:
                raise Problem("not_retryable", f"The job is {shown.state.status}")
            write = await self._decide(shown, caller)
            reply = await self._context.within(
                self._context.store.jobs.append(shown.meta.name, write, self._mint.token())
            )
            if reply.word is Word.APPLIED:
                return json_answer(await self._reader.view(await self._reader.need(caller, job_id)), 202)
        raise StoreUnavailable(f"{job_id} changes too fast to be retried")

    async def _decide(self, shown: Shown, caller: Caller) -> Write:
        history, state = await self._reader.history(shown, MOST_EVENTS), shown.state
        if not history.body:
            raise Problem("data_erased", "What the job was asked to do is gone")
        created = history.entries[0].event() if history.complete else None
        allowed = created.max_attempts if isinstance(created, ev.JobCreated) else 1
        event = ev.JobRetried(
            by=f"key/{caller.key_id}",
            from_status=str(state.status),
            run=state.run + 1,
            max_attempts=state.attempt + allowed,
        )
        return Write(
            state.id,
            (event,),
            fence=state.fence,
            hooked=await self._reader.subscribed(shown),
            guard=JobGuard(sequence=state.sequence),
            opens_for=state.tenant_id,
        )

    async def _gone(self, caller: Caller, job_id: str) -> Problem:
        """Say of a job that is not there whether it ever was the caller's: then its events still tell."""
        if is_job_id(job_id) and await self._events.find(caller.tenant_id, event_id(job_id, 1)) is not None:
            return Problem("data_erased", "The job was forgotten: its retention is over")
        return job_not_found()
