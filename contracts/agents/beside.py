"""What runs beside the agent: loops that are told to stop by an event, as supervised services."""

import asyncio
from collections.abc import Awaitable, Callable

from mode import Service
from mode.supervisors import OneForOneSupervisor

Body = Callable[[asyncio.Event], Awaitable[None]]


class Running(Service):
    """One loop. `wake` makes it look at its stop event now; without one it is cancelled when it is to stop."""

    def __init__(self, body: Body, wake: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._body = body
        self._wake = wake
        self._ending = asyncio.Event()
        self._ended = asyncio.Event()

    async def on_start(self) -> None:
        """Run it, also once more after a crash."""
        self._ending.clear()
        self._ended.clear()

    @Service.task
    async def _run(self) -> None:
        try:
            await self._body(self._ending)
        finally:
            self._ended.set()

    async def on_stop(self) -> None:
        """Wait for the loop's own end, if it is asked for that."""
        self._ending.set()
        if self._wake is not None:
            self._wake()
            await self._ended.wait()


class Supervisor(OneForOneSupervisor):
    """Starts its services one after another, starts again what crashed, and stops all of them at once."""

    def __init__(self, *services: Service) -> None:
        super().__init__()
        self.add(*services)

    async def on_stop(self) -> None:
        """Stop what was started."""
        running = [service.stop() for service in self._services if service.started]
        await asyncio.gather(*running, return_exceptions=True)
