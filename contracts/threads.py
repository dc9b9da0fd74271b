"""Blocking calls in threads of their own.

Promises: a call that hangs holds one of `most` daemon threads and nothing else: not the event loop, not the executor
that others use, not the exit of the process. A caller that is cancelled does not wait for its call.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """At most `most` calls at once; further ones wait for their turn."""

    def __init__(self, most: int, name: str) -> None:
        self._free = asyncio.Semaphore(most)
        self._name = name

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the call returns, raise what it raises."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: Any, error: Exception | None) -> None:
            # Only now: who waited may be gone long before the thread is.
            self._free.release()
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def work() -> None:
            result, error = None, None
            try:
                result = call(*args, **kwargs)
            except Exception as failure:
                error = failure
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=work, name=self._name, daemon=True).start()
        return await future
