"""The local stack as one object: start everything, keep it running, stop everything.

Promises: after `start` a job that is submitted will be run; whatever dies is started again; `stop` ends all of it
within 15 s; nothing outlives this process, however it ends. One stack per data directory.
"""

import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import headrace
from contracts.errors import HeadraceError
from contracts.settings import Settings
from headrace.client import Client
from headrace.stack import bootstrap, plan
from headrace.stack.child import Child, ServiceSpec
from headrace.stack.claim import claim
from headrace.stack.keeper_link import KeeperLink
from headrace.stack.keys_file import LocalKeys
from headrace.stack.logs import StackLog
from headrace.stack.plan import SERVICES, Wishes
from headrace.stack.port import reserve
from headrace.stack.readiness import wait_ready
from headrace.store_server import StoreNotReady, StoreServer, ensure, release

READY_LIMIT_S = 90.0
STORE_LIMIT_S = 300.0
"""A long file takes long to load."""
SERVICES_STOP_S = 9.0
STORE_STOP_S = 3.0
_STORE_WAIT_S = 5.0
_ECHO_EVERY_S = 0.1
_CHECK_EVERY_S = 1.0
_FSYNC = {"process": "everysec", "fsync": "always"}


class Stack:
    """A local stack. Use it as an async context manager: leaving it stops everything, also after a failed start."""

    def __init__(self, wishes: Wishes, settings: Settings, environ: Mapping[str, str], log: StackLog) -> None:
        self.url = ""
        self.store_url = ""
        self.store: StoreServer | None = None
        self.keys: LocalKeys
        self._wishes, self._settings, self._environ, self._log = wishes, settings, environ, log
        self._children: list[Child] = []
        self._keeper = KeeperLink(wishes.data_dir)
        self._background: list[asyncio.Task[None]] = []
        self._opened = contextlib.ExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def pids(self) -> dict[str, object]:
        """The processes by service, as the ready line shows them; unbuilt services have none."""
        found: dict[str, object] = {"store": self.store.pid if self.store else None}
        for service in SERVICES:
            found[service] = [child.pid for child in self._children if child.spec.service == service and child.pid]
        return found

    async def start(self) -> None:
        """Start everything and return when it is ready.

        Raises:
            AlreadyRunning: another stack uses the data directory.
            PortTaken: somebody listens on the port.
            ConfigError: a fault of the configuration, ours or one that a service reported.
            Unavailable: it did not become ready in time; the text holds the end of a log.
        """
        data_dir = self._wishes.data_dir
        claimed = await claim(data_dir)
        self._opened.callback(claimed.close)
        port = reserve(self._wishes.host, self._wishes.port)
        self._opened.callback(port.close)
        self.url = plan.public_url(self._wishes.host, port.number)
        await self._open_store()
        self.keys = await bootstrap.open_keys(data_dir / "keys.json", self.store_url, self.url)
        self._start_services(port.number, claimed.services_fd)
        async with Client(self.url, self.keys.admin_key) as client:
            await wait_ready(client, self._children, READY_LIMIT_S)

    async def stop(self) -> None:
        """Stop the services, then the store. Safe to call twice."""
        for child in self._children:
            child.ask_to_stop()
        await asyncio.gather(*(child.wait_stopped(SERVICES_STOP_S) for child in self._children))
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._log.echo_services()
        self._keeper.close()
        self._opened.close()
        if self.store:
            self.store = None
            if not await asyncio.to_thread(release, self._wishes.data_dir, wait_s=STORE_STOP_S):
                self._log.say("the store runs on: somebody else uses it")

    def kill(self) -> None:
        """Do not wait for the services any longer."""
        for child in self._children:
            child.kill()

    async def _open_store(self) -> None:
        if self._settings.redis.url:
            self.store_url = self._settings.redis.url
            return
        self.store = await self._ensure_store()
        self.store_url = self.store.url
        for warning in self.store.warnings:
            self._log.say(warning)

    async def _ensure_store(self) -> StoreServer:
        """Attach to the store or start it; in short waits, as a thread that waits cannot be stopped."""
        wanted = self._settings.store
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + STORE_LIMIT_S
        ensure_once = partial(
            ensure,
            self._wishes.data_dir,
            server=wanted.server,
            fsync=_FSYNC[wanted.durability],
            timeout_s=_STORE_WAIT_S,
        )
        while True:
            try:
                return await asyncio.to_thread(ensure_once)
            except StoreNotReady as fault:
                if loop.time() > deadline_s:
                    raise
                self._log.say(f"waiting for the store: {fault}")

    def _start_services(self, port: int, services_fd: int) -> None:
        environment = plan.service_environment(self._environ, self._wishes, port, self.store_url, self.url, _root())
        built = [name for name in SERVICES if _is_built(name)]
        self._keeper.check()
        kept_fds = [services_fd, *([self.store.lock_fd] if self.store else [])]
        each = self._wishes.devices_each
        mirror = bool(self._settings.kafka.mirror)
        for spec in plan.service_specs(
            built, self._wishes.workers, sys.executable, environment, each, mirror=mirror
        ):  # fmt: skip
            self._children.append(self._start_service(spec, kept_fds))
        self._background = [asyncio.create_task(self._keep_echoing()), asyncio.create_task(self._keep_checking())]

    def _start_service(self, spec: ServiceSpec, kept_fds: list[int]) -> Child:
        log = self._log.of_service(spec.name)
        child = Child(spec, log, self._keeper.tell, self._log.say, kept_fds)
        child.start()
        return child

    async def _keep_echoing(self) -> None:
        while True:
            self._log.echo_services()
            await asyncio.sleep(_ECHO_EVERY_S)

    async def _keep_checking(self) -> None:
        """The keeper and the store are not ours to restart on death: look after them now and then."""
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            try:
                self._keeper.check()
                self.store = await self._ensure_store() if self.store else None
            except (HeadraceError, OSError) as fault:
                self._log.say(str(fault))


def _is_built(service: str) -> bool:
    name = f"services.{service}"
    return bool(importlib.util.find_spec(name) and importlib.util.find_spec(f"{name}.__main__"))


def _root() -> str:
    """The folder that holds the `services` package, wherever we are installed."""
    return str(Path(headrace.__file__).resolve().parents[1])
