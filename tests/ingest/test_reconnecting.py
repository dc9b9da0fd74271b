"""Coming back at random over servers that restart, a store that restarts and a log that is trimmed under all of it."""

import asyncio
import os
import random
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import aiohttp
import structlog

from contracts.archive import Archive
from contracts.artifacts import Shelf
from contracts.artifacts.local import LocalObjects
from contracts.ids import is_job_id
from contracts.positions import entry_key
from contracts.retention import Kept
from contracts.settings import Settings
from contracts.store import Store, keys
from contracts.store.attempts import Attempt
from services.archivist.pool import PoolArchivist
from services.ingest.service import IngestService
from tests.archivist.rig import AT_ONCE
from tests.ingest.api import ADMIN_KEY, running_api, settings_for
from tests.ingest.conftest import ROOT, WAIT_S
from tests.ingest.live import progresses
from tests.ingest.reconnecting import Client, Key, SocketClient, SseClient, progress
from tests.servers import Server
from tests.store.play import POOL, Play

CONNECTIONS = int(os.environ.get("HEADRACE_TEST_RECONNECTS", "16"))  # each client; 200 are the whole case: 40 s
SEED = int(os.environ.get("HEADRACE_TEST_SEED", "6"))
IS_WHOLE = CONNECTIONS >= 100  # then servers are processes, and are killed
KEPT = replace(AT_ONCE, kept=Kept(3_600, 3_600))


async def test_each_event_is_told_once_or_lies_in_a_gap_that_is_told(own_server: Server, tmp_path: Path) -> None:
    """Field cases 73, 76 and 77: over ingest restarts, a store restart, trims with segments and one new epoch, clients
    of a job's stream, of the tenant's and of a socket miss nothing in silence: counted against the log.
    """
    settings = settings_for(own_server.url, tmp_path)
    async with running_api(settings) as api, AsyncExitStack() as stack:
        make = _Process if IS_WHOLE else _InLoop
        servers: list[_Server] = [make(settings), make(settings)]
        for server in servers:
            await server.start()
            stack.push_async_callback(server.stop)
        run = await _Run(own_server, api.store, tmp_path, servers).open()
        clients: list[Client] = [
            SseClient(run.urls, api.key, CONNECTIONS, 1, run.newest_job),
            SseClient(run.urls, api.key, CONNECTIONS, 2, run.newest_job),
            SseClient(run.urls, api.key, CONNECTIONS, 3, lambda: "/v1/stream"),
            SocketClient(run.urls, api.key, CONNECTIONS, 4),
        ]
        session = await stack.enter_async_context(aiohttp.ClientSession())
        stop = asyncio.Event()
        following = [asyncio.create_task(client.run(session, stop, run.last)) for client in clients]
        await run.until(lambda: progress(clients))
        stop.set()
        await asyncio.gather(*following)

    assert (run.restarts, run.store_restarts, run.epochs) >= (2, 1, 1)
    assert run.trimmed > 0
    assert len(run.log) > 2 * CONNECTIONS
    told = [(path, each) for client in clients for path, each in client.of.items() if each.begun is not None]
    for path, each in told:
        assert each.faults(run.of(path)) == [], path
        assert len(each.gaps) <= run.epochs, path
    assert any(each.gaps for _, each in told)  # a new epoch is one
    print(
        f"connections {sum(each.connections for _, each in told)}, restarts {run.restarts}, store restarts "
        f"{run.store_restarts}, trims {run.trims} of {run.trimmed} entries, epochs {run.epochs}, events in the log "
        f"{len(run.log)}, told {sum(len(each.events) for _, each in told)}, gaps {sum(len(e.gaps) for _, e in told)}"
    )


class _Run:
    """What happens while clients listen. `log`: the key of each event of a job -> the job, noted before any trim."""

    def __init__(self, server: Server, store: Store, folder: Path, servers: list["_Server"]) -> None:
        self._server, self._store, self._servers, self._chance = server, store, servers, random.Random(SEED)
        archive = Archive(store, LocalObjects(folder / "data" / "archive"))
        shelf = Shelf(LocalObjects(folder / "data" / "artifacts"))
        self._archivist = PoolArchivist(store, archive, shelf, "here", POOL, KEPT, structlog.get_logger())
        self.log: dict[Key, str] = {}
        self._attempts: list[Attempt] = []
        self._jobs: list[str] = []
        self._slot = self.restarts = self.store_restarts = self.epochs = self.trims = self.trimmed = 0

    async def open(self) -> "_Run":
        self._play = await Play(self._store).open()
        for _ in range(3):
            await self._job()
        return self

    def urls(self) -> list[str]:
        return [server.url for server in self._servers]

    def newest_job(self) -> str:
        return f"/v1/jobs/{self._jobs[-1]}/stream"

    def of(self, path: str) -> list[Key]:
        """Return what a client of this path must have been told."""
        return sorted(key for key, job_id in self.log.items() if not path.startswith("/v1/jobs/") or job_id in path)

    def last(self, path: str) -> Key:
        return self.of(path)[-1]

    async def until(self, done_of: Callable[[], float]) -> None:
        """Go on until the clients came back often enough."""
        restarts_at = [0.25, 0.6] if not IS_WHOLE else [step / 10 for step in range(1, 10)]
        while (done := done_of()) < 1:
            await self._step()
            if restarts_at and done >= restarts_at[0]:
                restarts_at.pop(0)
                await self._servers[self.restarts % 2].restart()
                self.restarts += 1
            if done >= 0.4 and not self.store_restarts:
                await self._restart_store()
            if done >= 0.75 and not self.epochs:
                await self._begin_epoch()
        for attempt in self._attempts:
            await self._play.completes(attempt)
        await self._note()

    async def _step(self) -> None:
        attempt = self._chance.choice(self._attempts)
        await progresses(self._play, attempt, *(self._chance.random() * 100 for _ in range(self._chance.randrange(12))))
        if self._chance.random() < 0.05:
            self._attempts.remove(attempt)
            await self._play.completes(attempt)
            await self._job()
        if self._chance.random() < 0.1:
            await self._archive()
        await asyncio.sleep(0.005)

    async def _job(self) -> None:
        self._slot += 1
        self._attempts.append(await self._play.running(slot=self._slot))
        self._jobs.append(self._attempts[-1].job_id)

    async def _archive(self) -> None:
        """Note what the log has, have everybody be past it, seal and trim."""
        await self._note()
        log, length = keys.log(POOL), await self._play.log_length()
        end = await self._store.end_of_log(POOL)
        await self._store.client.hset(keys.snapshot(POOL), "position", end)
        for group in (keys.GROUP_SCHEDULER, keys.GROUP_NOTIFIER):
            await self._store.client.xgroup_setid(log, group, end)
        await self._archivist.run_once()
        self.trims += 1
        self.trimmed += max(0, length - await self._play.log_length())

    async def _note(self) -> None:
        for position, fields in await self._store.client.xrange(keys.log(POOL)):
            if is_job_id(fields[b"j"].decode()) and fields[b"t"] != b"preview.available":
                self.log[entry_key(position.decode())] = fields[b"j"].decode()

    async def _restart_store(self) -> None:
        self._server.stop()
        await asyncio.sleep(0.2)
        self._server.start()
        self.store_restarts += 1
        await self._archive()

    async def _begin_epoch(self) -> None:
        await self._archive()
        token, manifest = self._archivist._token, await self._store.archive.manifest(POOL)
        assert manifest is not None
        epoch = await self._store.archive.fork(POOL, token, manifest.epoch, manifest.upto)
        assert epoch == manifest.epoch + 1
        self.epochs += 1


class _Server(Protocol):
    url: str

    def __init__(self, settings: Settings) -> None: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def restart(self) -> None: ...


class _InLoop:
    """An ingest service in this loop, that ends in order."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self.url = settings, ""

    async def start(self) -> None:
        self._service = IngestService(self._settings)
        await self._service.start()
        await self._service.context.opened.wait()
        self.url = f"http://127.0.0.1:{self._service.port}"

    async def stop(self) -> None:
        await self._service.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()


class _Process:
    """An ingest process, that is killed."""

    def __init__(self, settings: Settings) -> None:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        self.url, self._environment = "", plain | {
            "HEADRACE_REDIS__URL": settings.redis.url, "HEADRACE_INGEST__PORT": "0", "HEADRACE_ADMIN__KEY": ADMIN_KEY,
            "HEADRACE_PIPELINES": str(settings.pipelines), "HEADRACE_DATA_DIR": str(settings.data_dir),
            "HEADRACE_PUBLIC_URL": settings.public_url,
        }  # fmt: skip

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.ingest", env=self._environment, cwd=ROOT, stderr=asyncio.subprocess.PIPE
        )
        assert self._process.stderr is not None
        async with asyncio.timeout(WAIT_S):
            while b"store_opened" not in (line := await self._process.stderr.readline()):
                assert line, await self._process.wait()
                if b"ingest_started" in line:
                    port = int(line.partition(b'"port": ')[2].partition(b",")[0])
                    self.url = f"http://127.0.0.1:{port}"

    async def stop(self) -> None:
        self._process.kill()
        await self._process.wait()

    async def restart(self) -> None:
        await self.stop()
        await self.start()
