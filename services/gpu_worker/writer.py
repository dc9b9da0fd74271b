"""The one hand that writes about an attempt: calls one after another, each repeated until the store has answered.

Promises: k is gapless, so a lost reply never doubles an event; telemetry leaves at most every 100 ms; once the store
says that the attempt is somebody else's, nothing more is written and the owner is told once. Gives up only when told
to: while the store is away the author's work goes on.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import structlog

from contracts import events as ev
from contracts.errors import StoreUnavailable
from contracts.store import Word
from contracts.store.attempts import Attempt, Attempts
from contracts.store.log import pause
from contracts.store.replies import Started
from services.gpu_worker.telemetry import Telemetry

FLUSH_S = 0.1
T = TypeVar("T")
log = structlog.get_logger()


class GaveUp(Exception):
    """The supervisor ends before the store has answered."""


async def until_answered(
    first: Callable[[], Awaitable[T]], again: Callable[[], Awaitable[T]], over: asyncio.Event
) -> T:
    """Call `first`, then `again` while the store is away. Raises GaveUp once `over` is set."""
    call, failures = first, 0
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            failures += 1
            if failures == 1:
                log.warning("store_unavailable", detail=str(error))
        await pause(failures, over, random.random())
        if over.is_set():
            raise GaveUp
        call = again


async def unless_over(call: Coroutine[Any, Any, T], over: asyncio.Event) -> T:
    """Await a call that may hang; raises GaveUp once `over` is set, and leaves the call alone then."""
    answer, end = asyncio.ensure_future(call), asyncio.ensure_future(over.wait())
    try:
        await asyncio.wait([answer, end], return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        raise GaveUp
    finally:
        answer.cancel()
        end.cancel()


class AttemptWriter:
    """Writes about one accepted attempt."""

    def __init__(self, attempts: Attempts, right: Attempt, over: asyncio.Event, on_fenced: Callable[[], None]) -> None:
        self.telemetry = Telemetry()
        self.fenced = False
        self._attempts, self._right, self._over, self._on_fenced = attempts, right, over, on_fenced
        self._lock = asyncio.Lock()
        self._flusher: asyncio.Task[None] | None = None

    def flush_soon(self) -> None:
        """Write the telemetry within FLUSH_S."""
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())

    async def write(
        self,
        events: Sequence[ev.Event],
        *,
        line: bytes = b"",
        closes: bool = False,
        not_cancelled: bool = False,
    ) -> Word:
        """Write what telemetry is due, then `events`, in one call. Raises GaveUp."""
        async with self._lock:
            if self.fenced:
                return Word.FENCED
            due = self.telemetry.take()
            together = [*due, *events]
            if not together:
                return Word.APPLIED
            options = {"line": line, "closes": closes, "not_cancelled": not_cancelled}
            reply = await until_answered(
                lambda: self._attempts.emit(self._right, together, **options),  # type: ignore[arg-type]
                lambda: self._attempts.repeat(self._right, together, **options),  # type: ignore[arg-type]
                self._over,
            )
            if reply.word is Word.CONFLICT:
                self.telemetry.put_back(due)
            return self._judge(reply.word)

    async def release_and_start(
        self, released: ev.JobDeviceReleased, starting: Attempt, event: ev.JobStarted, done_entries: Sequence[str]
    ) -> Started:
        """End this attempt's device part and start the next one; its answer does not depend on ours. Raises GaveUp."""

        async def call(repeat: bool) -> Started:
            reply, started = await self._attempts.release_and_start(
                self._right, released, starting, event, done_entries, repeat=repeat
            )
            self._judge(reply.word)
            return started

        async with self._lock:
            return await until_answered(lambda: call(False), lambda: call(True), self._over)

    def _judge(self, word: Word) -> Word:
        if word in (Word.FENCED, Word.GONE, Word.REFUSED) and not self.fenced:
            # REFUSED means that k was out of order: a fault of ours, and no reason to write any further.
            self.fenced = True
            log.info("attempt_fenced", job=self._right.job_id, fence=self._right.fence, word=word)
            self._on_fenced()
        return word

    async def _flush(self) -> None:
        """Write until nothing is due: what was said during a write began no flush of its own."""
        try:
            while not self.fenced:
                await asyncio.sleep(FLUSH_S)
                await self.write([])
                if not self.telemetry.is_due:
                    return
        except GaveUp:
            return
