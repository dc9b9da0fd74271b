"""`POST /v1/jobs/{id}/retry`: a new run of a job that ended without a result. Unlike a replay it makes work.

Promises: one run for one request, whatever happens meanwhile; attempts count on, so that fences and the names of stored
files stay unique; what has ended well, or not yet, is refused; the limits of admission hold as for a new job.
"""

from aiohttp import web

from contracts.errors import StoreUnavailable
from contracts.store import Word
from contracts.store.jobs import MOST_EVENTS, Limits
from contracts.store.replies import Admission, Submits
from contracts.store.write import Write
from services.ingest.admission.admit import take_submit
from services.ingest.admission.verdict import refusal
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.events.finding import EventReader
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.read import JobReader, Shown, missing_job
from services.ingest.handlers.submissions import limits_of, rates_of
from services.ingest.minting import Mint
from services.ingest.new_run import new_run
from services.ingest.tenancy import Caller

TRIES = 5


class RetryHandler:
    """Runs jobs again."""

    def __init__(self, context: Context, reader: JobReader, events: EventReader) -> None:
        self._context, self._reader, self._events = context, reader, events
        self._mint = Mint(context.now_ms)

    async def retry(self, request: web.Request, caller: Caller) -> web.Response:
        """Queue the job again."""
        check_query(request, frozenset())
        job_id = request.match_info["id"]
        limits = limits_of(self._context, caller.tenant_id)
        submits: Submits | None = None
        for number in range(TRIES):
            shown = await self._reader.find(caller, job_id)
            if shown is None:
                raise await missing_job(self._events, caller, job_id)
            write = await self._decide(shown, caller)
            if number == 0:
                submits = await self._admit(shown.meta.name, caller.tenant_id, limits)
            call = self._context.store.jobs.append(shown.meta.name, write, self._mint.token(), limits=limits)
            reply = await self._context.within(call)
            if reply.word is Word.APPLIED:
                view = await self._reader.view(await self._reader.need(caller, job_id))
                return json_answer(view, 202, rates_of(self._context, caller, submits))
            if reply.limit:
                raise self._refused(refusal(Admission(reply.word, limit=reply.limit)))
        raise StoreUnavailable(f"{job_id} changes too fast to be retried")

    async def _admit(self, pool: str, tenant_id: str, limits: Limits) -> Submits | None:
        """Count it as a submit. Raises Problem when nothing new is admitted now."""
        code = self._context.readiness.refuses_admission(pool)
        if code is not None:
            raise Problem(code)
        try:
            return await take_submit(self._context, tenant_id, limits)
        except Problem as problem:
            raise self._refused(problem) from None

    def _refused(self, problem: Problem) -> Problem:
        for policy in problem.policies:
            self._context.metrics.count_refused(policy)
        return problem

    async def _decide(self, shown: Shown, caller: Caller) -> Write:
        history = await self._reader.history(shown, MOST_EVENTS)
        return new_run(history, f"key/{caller.key_id}", await self._reader.subscribed(shown))
