"""The device's part of what a lane has started: author code for one attempt, or for a batch in one pass.

Promises: author code does not begin if the job was cancelled or the lane was closed meanwhile; each attempt has its
outcome when `one` or `batch` returns; who ends before the pass does leaves at once, charged its share of the device.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import structlog

from services.gpu_worker.deck import Shop
from services.gpu_worker.running import Running
from services.gpu_worker.shares import Shares
from services.gpu_worker.slots.attempt import Attempt, Member
from services.gpu_worker.slots.outcome import OUT_OF_MEMORY, Outcome, Verdict
from services.gpu_worker.slots.slot import Slot, SlotQuarantined

Leave = Callable[[Running, Outcome], None]
log = structlog.get_logger()


class Performer:
    """Runs on one slot what was started there. `is_closed`: whether the worker drains."""

    def __init__(self, slot: Slot, shop: Shop, is_closed: Callable[[], bool]) -> None:
        self._slot, self._shop, self._is_closed = slot, shop, is_closed

    async def one(self, running: Running) -> Outcome:
        """Run one attempt by itself."""
        attempt = await self._bring(running) or self._attempt(running)
        if isinstance(attempt, Outcome):
            return attempt
        running.follow_log(attempt.log_path)
        try:
            outcome = await self._slot.run(attempt, running)
            if attempt.alone and outcome.code == OUT_OF_MEMORY:
                return outcome._replace(denied=not await self._slot.gave_all())
            return outcome
        except SlotQuarantined:
            return Outcome(Verdict.HANDED_BACK)
        except (ValueError, KeyError, TypeError, OSError) as error:
            return _not_run(running.right.job_id, error)

    async def batch(self, batch: Sequence[Running], leave: Leave) -> None:
        """Run attempts in one pass; `leave` is called for each of them, when it has ended."""
        shares, inside = Shares(len(batch), batch[0].elapsed_ms), list(batch)

        def leaves(running: Running, outcome: Outcome) -> None:
            if running in inside:
                inside.remove(running)
                running.gpu_ms = shares.leave(batch[0].elapsed_ms)
                leave(running, outcome)

        asked: list[tuple[Running, Member]] = []
        of_one_tenant = len({running.right.offer.tenant_id for running in batch}) == 1
        brought = await asyncio.gather(*(self._bring(running) for running in batch))
        for running, ended in zip(batch, brought, strict=True):
            attempt = ended or self._attempt(running)
            if isinstance(attempt, Outcome):
                leaves(running, attempt)
            else:
                asked.append((running, Member(attempt, running)))
                running.is_log_withheld = not of_one_tenant  # who printed what in a pass cannot be told apart
                if of_one_tenant:
                    running.follow_log(asked[0][1].attempt.log_path)  # the one the pass has
                asked[-1][1].outcome.add_done_callback(partial(_then, leaves, running))
        for running, _ in asked:
            running.batch_size = len(asked)
        failure = await self._pass([member for _, member in asked])
        for running, member in asked:
            leaves(running, member.outcome.result() if member.outcome.done() else failure)

    async def _pass(self, members: list[Member]) -> Outcome:
        """Run them; returns the outcome of those that have none."""
        try:
            if members:
                await self._slot.run_batch(members)
            return Outcome(Verdict.HANDED_BACK)
        except SlotQuarantined:
            return Outcome(Verdict.HANDED_BACK)
        except (ValueError, KeyError, TypeError, OSError) as error:
            return _not_run(members[0].attempt.job, error)

    async def _bring(self, running: Running) -> Outcome | None:
        """Bring the files of its inputs; returns how it ended if it cannot begin."""
        spec = self._shop.models.find(running.right.offer.model)
        if spec is None or self._refusal(running) is not None:
            return None  # `_attempt` says so
        try:
            return await self._shop.bringing.bring(running, spec)
        except (ValueError, KeyError, TypeError) as error:
            return _not_run(running.right.job_id, error)

    def _attempt(self, running: Running) -> Attempt | Outcome:
        """Return what the slot runs, or why author code must not begin although the start was accepted."""
        refusal = self._refusal(running)
        if refusal is not None:
            return refusal
        spec = self._shop.models.find(running.right.offer.model)
        if spec is None:
            message = "this worker does not serve this version of the model"
            return Outcome(Verdict.FAILED, "model_load_failed", message)
        try:
            return running.attempt(spec)
        except (ValueError, KeyError, TypeError) as error:
            return _not_run(running.right.job_id, error)

    def _refusal(self, running: Running) -> Outcome | None:
        if running.key in self._shop.cancels:
            return Outcome(Verdict.CANCELLED, how="cooperative")
        if self._is_closed():
            return Outcome(Verdict.HANDED_BACK)
        return None


def _then(leaves: Leave, running: Running, done: "asyncio.Future[Outcome]") -> None:
    leaves(running, done.result())


def _not_run(job_id: str, error: Exception) -> Outcome:
    log.error("attempt_not_run", job=job_id, detail=f"{type(error).__name__}: {error}")
    return Outcome(Verdict.FAILED, "internal", "the worker could not run this job")
