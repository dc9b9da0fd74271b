"""Name look-ups for addresses that callers chose: the system's resolver in threads of its own.

Promises: a look-up that hangs holds one of `LOOKUPS_MAX` daemon threads and nothing else: not the event
loop, not the executor others use, not the exit of the process.
Does not promise: caching or judging. Each request looks up afresh; the socket's guard judges what it got.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

LOOKUPS_MAX = 256
_LookUp = Callable[[], list[ResolveResult]]


class SystemResolver(AbstractResolver):
    """Resolve by getaddrinfo. Asking for a host that does not exist raises OSError."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(LOOKUPS_MAX)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        await self._free.acquire()
        return await self._in_thread(lambda: _look_up(host, port, family))

    async def close(self) -> None:
        """Leave running look-ups alone: their threads end by themselves and hold nothing."""

    def _in_thread(self, look_up: _LookUp) -> asyncio.Future[list[ResolveResult]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[ResolveResult]] = loop.create_future()

        def settle(result: list[ResolveResult] | None, error: OSError | UnicodeError | None) -> None:
            # Only now: an attempt that timed out is gone long before the thread of its look-up is.
            self._free.release()
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result or [])

        def run() -> None:
            result, error = None, None
            try:
                result = look_up()
            except (OSError, UnicodeError) as failure:
                error = failure
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=run, name="outbound-lookup", daemon=True).start()
        return future


def _look_up(host: str, port: int, family: int) -> list[ResolveResult]:
    # Without ADDRCONFIG a host that has no IPv6 would report "no route" where IPv4 was refused.
    found: list[Any] = socket.getaddrinfo(
        host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return [
        ResolveResult(
            hostname=host,
            host=address[0],
            port=address[1],
            family=found_family,
            proto=proto,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for found_family, _, proto, _, address in found
    ]
