"""A server process with the real edge, and a client that sends exactly the bytes it is given."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ingest.api import Api, running_api, settings_for
from tests.store.play import Play

ROOT = Path(__file__).parents[2]
WAIT_S = 20


@dataclass
class EdgeProcess:
    """A running edge server."""

    process: "subprocess.Popen[str]"
    port: int
    slow_parser: bool
    log: Path

    def rss_bytes(self) -> int:
        """Resident memory of the server."""
        if sys.platform == "linux":
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGESIZE")
        out = subprocess.check_output(["ps", "-o", "rss=", "-p", str(self.process.pid)], text=True)
        return int(out) * 1024


@pytest.fixture
def edge_server(tmp_path: Path) -> Iterator[Callable[..., EdgeProcess]]:
    """Start edge servers: `edge_server(extensions=False, head_timeout_s=1)`; all are stopped at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(*, extensions: bool = True, **options: float) -> EdgeProcess:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        environment.pop("AIOHTTP_NO_EXTENSIONS", None)
        if not extensions:
            environment["AIOHTTP_NO_EXTENSIONS"] = "1"
        log = tmp_path / f"edge-{len(started)}.log"
        with log.open("w") as err:
            process = subprocess.Popen(
                [sys.executable, str(ROOT / "tests/ingest/edge_server.py"), json.dumps(options)],
                stdout=subprocess.PIPE, stderr=err, env=environment, text=True, cwd=ROOT,
            )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        return EdgeProcess(process, ready["port"], ready["slow_parser"], log)

    yield start
    for process in started:
        process.kill()
        process.communicate()


@dataclass
class RawConnection:
    """A socket and what came back on it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Send bytes; a peer that closed meanwhile is no error here, its answer is what counts."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError:
            pass

    async def answer(self) -> tuple[int, dict[str, str], dict[str, object]]:
        """Read one answer: status, headers in lower case, JSON body."""
        async with asyncio.timeout(WAIT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status_line, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await self.reader.readexactly(int(headers["content-length"]))
        return int(status_line.split()[1]), headers, json.loads(body)

    async def closed(self) -> bool:
        """Wait until the peer ends the connection."""
        async with asyncio.timeout(WAIT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def raw_connection(port: int) -> AsyncIterator[RawConnection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.close()


@pytest.fixture
def connect() -> Callable[[int], "asynccontextmanager[RawConnection]"]:
    """Open a raw connection: `async with connect(port) as raw`."""
    return raw_connection  # type: ignore[return-value]


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    """A service with tenant `t_a` and its key."""
    async with running_api(settings_for(store_url, tmp_path)) as running:
        yield running


@pytest.fixture
async def play(api: Api) -> Play:
    """A leader and a worker beside the service, to bring jobs into states."""
    return await Play(api.store).open()
