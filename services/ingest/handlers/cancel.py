"""Cancelling one job: exact in every state, and harmless to repeat."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from aiohttp import web

from contracts import events as ev
from contracts.errors import StoreUnavailable
from contracts.job import TERMINAL, JobState, JobStatus
from contracts.store.words import Word
from contracts.store.write import JobGuard, WorkEntry, Write, off_deck
from services.ingest.context import Context
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.read import JobReader, Shown, job_not_found
from services.ingest.minting import Mint
from services.ingest.tenancy import Caller

CANCEL_TRIES = 8


@dataclass(frozen=True, slots=True)
class Cancelled:
    """How a job stands after it was to be cancelled; `now`: by this call.

    `ended`: it ended otherwise. `spared`: it is not meant any more.
    """

    outcome: Literal["cancelled", "requested", "ended", "spared"]
    shown: Shown
    now: bool


class Canceller:
    """Cancels jobs, one by one."""

    def __init__(self, context: Context, reader: JobReader) -> None:
        self._context = context
        self._reader = reader
        self._mint = Mint(context.now_ms)

    async def cancel(self, request: web.Request, caller: Caller) -> web.Response:
        """Cancel: 200 when it is cancelled, 202 while a running job stops, 409 when it ended otherwise."""
        check_query(request, frozenset())
        done = await self.apply(await self._reader.need(caller, request.match_info["id"]), caller)
        if done.outcome == "ended":
            raise Problem("already_terminal", f"The job is {done.shown.state.status}")
        return json_answer(await self._reader.view(done.shown), 200 if done.outcome == "cancelled" else 202)

    async def apply(
        self, shown: Shown, caller: Caller, is_meant: Callable[[JobState], bool] = lambda _: True
    ) -> Cancelled:
        """Cancel a job, whatever happens to it meanwhile, as long as it is meant.

        Raises Problem `job_not_found` when it was forgotten.
        """
        now = False
        for _ in range(CANCEL_TRIES):
            status = shown.state.status
            if status is JobStatus.CANCELLED:
                return Cancelled("cancelled", shown, now)
            if status in TERMINAL:
                return Cancelled("ended", shown, False)
            if status is JobStatus.IN_PROGRESS and shown.state.cancel_requested_ms is not None:
                return Cancelled("requested", shown, now)
            if not is_meant(shown.state):
                return Cancelled("spared", shown, False)
            reply = await self._context.within(
                self._context.store.jobs.append(shown.meta.name, await self.decide(shown, caller), self._mint.token())
            )
            if reply.word is Word.GONE:
                raise job_not_found()
            # Applied or overtaken by another event: look again, decide again.
            now = now or reply.word is Word.APPLIED
            shown = await self._reader.need(caller, shown.state.id)
        raise StoreUnavailable(f"{shown.state.id} changes too fast to be cancelled")

    async def decide(self, shown: Shown, caller: Caller) -> Write:
        """Decide what cancels the job in the state it was seen in; the write holds only in that state."""
        state = shown.state
        by = f"key/{caller.key_id}"
        hooked = await self._reader.subscribed(shown)
        guard = JobGuard(sequence=state.sequence)
        if state.status is JobStatus.IN_PROGRESS:
            order = WorkEntry(state.worker_id or "", "cancel", {"jobId": state.id, "fence": state.fence})
            events = (ev.JobCancelRequested(by=by),)
            return Write(state.id, events, fence=state.fence, hooked=hooked, guard=guard, work=(order,))
        offers = state.offers.items()
        return Write(
            state.id,
            (ev.JobCancelled(how="queued", by=by),),
            fence=state.fence,
            hooked=hooked,
            guard=guard,
            closes_for=state.tenant_id,
            worker_fields=[off_deck(worker_id, slot, state.id, offer_id) for offer_id, (worker_id, slot) in offers],
            work=[
                WorkEntry(worker_id, "withdraw", {"offerId": offer_id, "jobId": state.id})
                for offer_id, (worker_id, _) in offers
            ],
        )
