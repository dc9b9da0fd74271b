"""One timer for many waits of the same length.

Promises: a wait that lasts longer than `limit_s` (checked every `TICK_S`) is cut and raises TimeoutError in the task
that waits; not one whose end has reached this process, even if the process was held up until later. Waits of one length
end in the order they began, so a queue and one timer do what would otherwise take a timer each; at thousands of waits a
second those timers cost as much as the work itself.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import TypeVar

TICK_S = 0.05
# Turns of the loop from a reply in a socket to the task that waits for it, with room to spare. A process that was held
# up finds replies and overdue waits at the same moment, and uvloop runs timers before it reads.
GRACE_TURNS = 8

T = TypeVar("T")


class _Wait:
    __slots__ = ("deadline_s", "is_cut", "task")

    def __init__(self, task: "asyncio.Task[object]", deadline_s: float) -> None:
        self.task: asyncio.Task[object] | None = task
        self.deadline_s = deadline_s
        self.is_cut = False


class Patience:
    """Waits at most `limit_s` for anything."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._waits: deque[_Wait] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def within(self, call: Awaitable[T]) -> T:
        """Await `call`. Raises TimeoutError when it takes too long; the call is cancelled then."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        wait = _Wait(task, loop.time() + self._limit_s)
        self._waits.append(wait)
        if self._timer is None:
            self._timer = loop.call_later(TICK_S, self._tick, loop)
        try:
            return await call
        except asyncio.CancelledError:
            # Ours, unless somebody else cancelled the task as well: then theirs goes on.
            if wait.is_cut and task.uncancel() == 0:
                raise TimeoutError from None
            raise
        finally:
            wait.task = None

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._forget_ended()
        if self._waits and self._waits[0].deadline_s <= loop.time():
            self._cut_soon(loop, loop.time(), GRACE_TURNS)
        else:
            self._timer = loop.call_later(TICK_S, self._tick, loop) if self._waits else None

    def _cut_soon(self, loop: asyncio.AbstractEventLoop, now_s: float, turns: int) -> None:
        if turns:
            loop.call_soon(self._cut_soon, loop, now_s, turns - 1)
            return
        self._forget_ended()
        while self._waits and self._waits[0].deadline_s <= now_s:
            wait = self._waits.popleft()
            if wait.task is not None:
                wait.is_cut = True
                wait.task.cancel()
        self._timer = loop.call_later(TICK_S, self._tick, loop) if self._waits else None

    def _forget_ended(self) -> None:
        while self._waits and self._waits[0].task is None:
            self._waits.popleft()
