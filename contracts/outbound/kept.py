"""Sessions that are kept for a while, one for each receiver: who is told often is not connected to each time.

Promises: a session serves one receiver only, so no connection is shared between two; one that is in use is never
closed; what is not used any more goes after `idle_s`, at the next use of any.
Does not promise that a kept connection still stands: whoever sends on it learns that by an error, as of a new one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp


@dataclass(slots=True)
class _Kept:
    session: aiohttp.ClientSession
    users: int = 0
    idle_since_s: float = 0.0


class KeptSessions:
    """The sessions of one process. `make` opens one."""

    def __init__(self, make: Callable[[], aiohttp.ClientSession], idle_s: float) -> None:
        self._make = make
        self._idle_s = idle_s
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # the one that was used the longest ago first

    @asynccontextmanager
    async def of(self, receiver: str) -> AsyncIterator[aiohttp.ClientSession]:
        """Lend the session of a receiver."""
        await self._let_go()
        kept = self._kept.get(receiver)
        if kept is None:
            kept = self._kept[receiver] = _Kept(self._make())
        kept.users += 1
        try:
            yield kept.session
        finally:
            kept.users -= 1
            kept.idle_since_s = asyncio.get_running_loop().time()
            self._kept.move_to_end(receiver)

    async def aclose(self) -> None:
        """Close all of them."""
        while self._kept:
            _, kept = self._kept.popitem()
            await kept.session.close()

    async def _let_go(self) -> None:
        """Close what is idle for too long, from the front; there may be something in use before it."""
        over_s = asyncio.get_running_loop().time() - self._idle_s
        for _ in range(2):  # more than come, so that they do not pile up
            receiver, kept = next(iter(self._kept.items()), ("", None))
            if kept is None:
                return
            if kept.users:
                self._kept.move_to_end(receiver)
            elif kept.idle_since_s <= over_s:
                del self._kept[receiver]
                await kept.session.close()
