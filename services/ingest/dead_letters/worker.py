"""Takes dead letters back to work, or off the list, as operations ask: at their rate, however long that takes.

Promises: an operation is one process's until its lease runs out, and is gone on with by any other from where it was; a
job is redriven once for an operation, whoever dies in between, since its events say whether it was; one that failed
again after the operation was asked for is left alone; a job for which its tenant's queue, or the pool, has no room
waits, and the others go first.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from contracts import events as ev
from contracts.dead_letters import Operation
from contracts.errors import Corrupt, Unavailable
from contracts.store import Word, keys
from contracts.store.jobs import MOST_EVENTS
from contracts.store.log import pause
from contracts.store.write import JobGuard, Write
from contracts.telemetry import Logger
from contracts.waiting import wait
from services.ingest.context import Context
from services.ingest.dead_letters.finding import LetterFinder
from services.ingest.edge.problems import Problem
from services.ingest.handlers.read import JobReader, Shown
from services.ingest.handlers.submissions import limits_of
from services.ingest.minting import Mint
from services.ingest.new_run import new_run

LOOK_EVERY_S = 1.0
LEASE_MS = 10_000
MOST_IN_HAND = 50
ROUND_PAUSE_MS = 5_000  # before those that there was no room for are tried again
LONGEST_WAIT_S = 1.0  # without saying that we are still at it
TRIES = 5

Wait = Callable[[asyncio.Event, float], Awaitable[None]]  # until the event is set, or so many seconds

log: Logger = structlog.get_logger(service="ingest")


class LetterWorker:
    """Works on operations, one at a time; run it as a task of each ingest process."""

    def __init__(
        self, context: Context, reader: JobReader, *,
        clock_s: Callable[[], float] = time.monotonic, wait: Wait = wait,
    ) -> None:  # fmt: skip
        self._context, self._reader, self._clock_s, self._wait = context, reader, clock_s, wait
        self._finder = LetterFinder(context)
        self.who = Mint(context.now_ms).token()
        self._next_s = 0.0
        self._lease_s = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Work on what is asked for until `stop`; no outage of the store ends it."""
        failures = 0
        while not stop.is_set():
            try:
                asked = await self._context.store.letter_work.claim(keys.SYSTEM, self.who, LEASE_MS)
                if asked is not None:
                    await self.work(asked, stop)
                failures = 0
            except (Unavailable, Corrupt, Problem) as error:
                failures += 1
                log.warning("dead_letters_not_worked_on", reason=str(error), failures_count=failures)
            except Exception:
                failures += 1
                log.exception("dead_letters_failed")
            await (pause(failures, stop, 0.5) if failures else self._wait(stop, LOOK_EVERY_S))

    async def work(self, asked: Operation, stop: asyncio.Event) -> None:
        """Go on with a claimed operation until it is done, another's, or waits for room."""
        self._lease_s = self._clock_s() + LEASE_MS / 1000
        while not stop.is_set():
            asked = await self._step(asked, stop)
            if not await self._context.store.letter_work.keep(keys.SYSTEM, self.who, LEASE_MS, asked):
                return  # another goes on with it, or it was stopped
            self._lease_s = self._clock_s() + LEASE_MS / 1000
            if asked.done_ms:
                log.info("dead_letters_done", operation_id=asked.id, verb=asked.verb, done=asked.done)
            if asked.done_ms or asked.not_before_ms:
                return  # until its next round it is the turn of others

    async def _step(self, asked: Operation, stop: asyncio.Event) -> Operation:
        """Do a part; returns how far it is now."""
        if asked.hand:
            return await self._deal(asked, stop)
        # The store's time, like that of every lease: a host whose clock is wrong must not wait for a day.
        now_ms = await self._context.within(self._context.store.dead_letters.now_ms())
        if asked.not_before_ms > now_ms:
            return asked
        if asked.not_before_ms:
            return asked.next_round()
        taken = await self._take(asked)
        if taken is not None:
            return taken
        if asked.deferred:
            return replace(asked, not_before_ms=now_ms + ROUND_PAUSE_MS)
        return replace(asked, done_ms=now_ms)

    async def _take(self, asked: Operation) -> Operation | None:
        """Take the next ones in hand; None when there are no others."""
        most = max(1, min(MOST_IN_HAND, int(asked.rate)))
        if asked.ids is not None:
            return replace(asked, hand=asked.ids[:most], ids=asked.ids[most:]) if asked.ids else None
        found, place = await self._finder.behind(asked.wanted, asked.place, most, oldest_first=True)
        if place is None:
            end = (max(self._context.pools, default=""), 1 << 52, "~")
            return replace(asked, hand=tuple(letter.id for _, letter in found), place=end) if found else None
        return replace(asked, hand=tuple(letter.id for _, letter in found), place=place)

    async def _deal(self, asked: Operation, stop: asyncio.Event) -> Operation:
        """Deal with what is in hand, each in its time; gives up what is left before the lease ends."""
        for job_id in asked.hand:
            wait_s = self._next_s - self._clock_s()
            if stop.is_set() or wait_s > LONGEST_WAIT_S or self._clock_s() > self._lease_s - 2 * LONGEST_WAIT_S:
                await self._wait(stop, min(LONGEST_WAIT_S, max(0.0, wait_s)))
                break
            await self._wait(stop, wait_s)
            asked = asked.counted(job_id, await self._outcome(asked, job_id))
        return asked

    async def _outcome(self, asked: Operation, job_id: str) -> str:
        try:
            return await self._one(asked, job_id)
        except Corrupt as error:
            log.error("dead_letter_unreadable", operation_id=asked.id, job_id=job_id, reason=str(error))
            return "unreadable"  # `headrace audit verify` says of what; the others must not wait for that

    async def _one(self, asked: Operation, job_id: str) -> str:
        """Deal with one; returns `done`, `deferred`, or the code of what is in the way."""
        for _ in range(TRIES):
            shown = await self._reader.find_any(job_id)
            if shown is None:
                return "job_not_found"
            if not _is_meant(asked, shown):
                return "done" if await self._was_done(asked, shown) else "not_dead_lettered"
            refused = self._context.readiness.refuses_admission(shown.meta.name)
            if refused is not None and asked.verb == "redrive":
                return "deferred"
            try:
                limits = limits_of(self._context, shown.state.tenant_id)
                write = await self._decide(asked, shown)
            except Problem as problem:
                return problem.code
            self._next_s = max(self._next_s, self._clock_s()) + 1 / asked.rate
            held_to = limits if asked.verb == "redrive" else None
            call = self._context.store.jobs.append(shown.meta.name, write, asked.id, limits=held_to)
            reply = await self._context.within(call)
            if reply.limit:
                return "deferred"
            if reply.applied:
                return "done"
            if reply.word is Word.GONE:
                return "data_erased"
        return "version_mismatch"

    async def _decide(self, asked: Operation, shown: Shown) -> Write:
        state = shown.state
        cause = state.error_code or "internal"
        hooked = await self._reader.subscribed(shown)
        if asked.verb == "discard":
            off = ev.JobDiscarded(cause=cause, operation_id=asked.id, reason=asked.reason, by=asked.by)
            return Write(
                state.id, (off,), fence=state.fence, hooked=hooked, guard=JobGuard(sequence=state.sequence)
            )  # fmt: skip
        if self._context.models.find(state.model) is None:
            raise Problem("model_not_found", "The pipelines file has no such model any more")
        history = await self._reader.history(shown, MOST_EVENTS)
        back = ev.JobRedriven(cause=cause, operation_id=asked.id, reason=asked.reason, by=asked.by)
        return new_run(history, f"key/{asked.by}", hooked, (back,))

    async def _was_done(self, asked: Operation, shown: Shown) -> bool:
        """Whether this operation did it before, in a process that died before it could say so."""
        history = await self._reader.history(shown, MOST_EVENTS, with_body=False)
        of_us = (ev.JobRedriven, ev.JobDiscarded)
        events = (entry.event() for entry in history.entries if entry.type in (each.TYPE for each in of_us))
        return any(isinstance(event, of_us) and event.operation_id == asked.id for event in events)


def _is_meant(asked: Operation, shown: Shown) -> bool:
    failed_ms = shown.state.done_ms or 0
    return bool(shown.state.dead_lettered) and failed_ms < asked.wanted.until_ms
