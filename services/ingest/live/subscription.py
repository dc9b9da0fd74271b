"""What one listener has not taken yet.

Promises: at most `most` events wait, however slowly they are taken; one more, and all of them are dropped and the
listener is told that it is slow, so that it comes back by its position. Of previews only the newest of each job waits.
"""

import asyncio
from collections import deque
from typing import Generic, Protocol, TypeVar

PREVIEW = "preview.available"
MOST_WAITING = 1_000


class Told(Protocol):
    """What is told: an entry of the log, or what was made of one."""

    @property
    def type(self) -> str: ...
    @property
    def subject(self) -> str: ...


T = TypeVar("T", bound=Told)


class Subscription(Generic[T]):
    """One listener. `is_over`: the process ends; `is_slow`: it did not keep up; `is_lost`: the log jumped under it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[T] = deque()
        self._previews: dict[str, T] = {}
        self._changed = asyncio.Event()
        self.is_over = self.is_slow = self.is_lost = False

    def put(self, told: T) -> None:
        """Keep what was told until it is taken."""
        if self.is_slow or self.is_lost:
            return
        if told.type == PREVIEW:
            self._previews[told.subject] = told
        elif len(self._waiting) < self._most:
            self._waiting.append(told)
        else:
            self.is_slow = True
            self._drop()
        self._changed.set()

    def end(self) -> None:
        """Say that nothing more comes."""
        self.is_over = True
        self._changed.set()

    def lose(self) -> None:
        """Say that there is a hole behind what was taken last."""
        self.is_lost = True
        self._drop()
        self._changed.set()

    def begin_again(self) -> None:
        """Listen on after a hole: what comes from here on follows what is read next."""
        self.is_lost = self.is_slow = False

    async def wait(self, seconds: float) -> bool:
        """Wait until there is a reason to look; False when the time is over."""
        if not self._changed.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return False
        self._changed.clear()
        return True

    def take(self) -> list[T]:
        """Return what waits: previews first, since they must not come behind the end of their job."""
        taken = [*self._previews.values(), *self._waiting]
        self._drop()
        return taken

    def _drop(self) -> None:
        self._waiting.clear()
        self._previews.clear()
