"""`python -m services.ingest` as a process: signals, kill -9, configuration."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest

from contracts import events as ev
from contracts.store import Store, keys
from tests.ingest.api import ADMIN_KEY, JOB, write_pipelines
from tests.ingest.conftest import ROOT, WAIT_S, raw_connection

KEY = "sk_test_k1_secret"


class Ingest:
    """One ingest process on a port of its own."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process, self.port = process, port
        self.url = f"http://127.0.0.1:{port}"

    async def ended(self) -> int:
        async with asyncio.timeout(WAIT_S):
            return await self.process.wait()


@pytest.fixture
async def start(store_url: str, tmp_path: Path) -> AsyncIterator[Callable[..., object]]:
    """Start ingest processes; a tenant with the key KEY is there."""
    running: list[Ingest] = []
    await _introduce(store_url)

    async def begin(**variables: str) -> Ingest:
        environment = os.environ | {
            "HEADRACE_REDIS__URL": store_url,
            "HEADRACE_INGEST__PORT": "0",
            "HEADRACE_ADMIN__KEY": ADMIN_KEY,
            "HEADRACE_PIPELINES": str(write_pipelines(tmp_path / "pipelines")),
            "HEADRACE_DATA_DIR": str(tmp_path),
            **variables,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.ingest", env=environment, cwd=ROOT, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        port = 0
        async with asyncio.timeout(WAIT_S):
            while b"store_opened" not in (line := await process.stderr.readline()):
                if b"ingest_started" in line:
                    port = int(line.partition(b'"port": ')[2].partition(b",")[0])
        ingest = Ingest(process, port)
        running.append(ingest)
        return ingest

    yield begin
    for ingest in running:
        if ingest.process.returncode is None:
            ingest.process.kill()
            await ingest.process.wait()
        ingest.process._transport.close()  # type: ignore[attr-defined]


async def _introduce(store_url: str) -> None:
    from services.ingest.tenancy import digest_of

    store = Store(store_url)
    await store.directory.open()
    await store.directory.change(lambda _: ev.TenantCreated(tenant_id="t_a"), "t_a", {"webhook:t_a": "whsec_x"})
    created = ev.KeyCreated(tenant_id="t_a", key_id="key_k1", sha256=digest_of(KEY), scopes=("jobs:write", "jobs:read"))
    await store.directory.change(lambda _: created, "key_k1")
    await store.aclose()


def request(ingest: Ingest, *lines: str, body: bytes) -> bytes:
    head = ["POST /v1/jobs HTTP/1.1", "Host: a", f"Authorization: Bearer {KEY}", "Content-Type: application/json"]
    return ("\r\n".join([*head, *lines, f"Content-Length: {len(body)}", "", ""])).encode() + body


async def test_sigterm_answers_what_was_accepted_and_exits_0(start: Callable[..., object]) -> None:
    ingest: Ingest = await start()  # type: ignore[misc]
    body = b'{"userId":"u","prompt":"an onion","model":"draw"}'

    async with raw_connection(ingest.port) as raw:
        whole = request(ingest, "Expect: 100-continue", body=body)
        await raw.send(whole[:-10])
        await raw.reader.readuntil(b"100 Continue\r\n\r\n")
        ingest.process.send_signal(signal.SIGTERM)
        await _refuses_connections(ingest.port)
        await raw.send(whole[-10:])
        status, headers, _ = await raw.answer()

    assert (status, headers["connection"]) == (201, "close")
    assert await ingest.ended() == 0


async def test_kill_9_between_accepting_and_answering_leaves_at_most_one_job(
    start: Callable[..., object], store_url: str
) -> None:
    """The caller never hears; the same key finds out, and there is exactly one job."""
    first: Ingest = await start()  # type: ignore[misc]
    second: Ingest = await start()  # type: ignore[misc]
    body = b'{"userId":"u_42","prompt":"an onion","model":"draw"}'

    for number in range(10):
        async with raw_connection(first.port) as raw:
            await raw.send(request(first, f"Idempotency-Key: order-{number}", body=body))
            if number == 9:
                first.process.kill()
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:
        for number in range(10):
            headers = {"Idempotency-Key": f"order-{number}"}
            async with session.post(second.url + "/v1/jobs", json=JOB, headers=headers) as response:
                assert response.status in (200, 201)

    store = Store(store_url)
    entries = await store.client.xrange(keys.log("default"))
    await store.aclose()
    assert len(entries) == 10


async def test_a_restarted_ingest_gets_its_port_back(start: Callable[..., object]) -> None:
    first: Ingest = await start()  # type: ignore[misc]
    async with raw_connection(first.port):
        first.process.kill()
        await first.ended()

        second: Ingest = await start(HEADRACE_INGEST__PORT=str(first.port))  # type: ignore[misc]

    assert second.port == first.port


async def test_faults_of_the_configuration_are_told_together_with_exit_2(tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "HEADRACE_INGEST__PORT": "99999",
        "HEADRACE_NO_SUCH": "1",
        "HEADRACE_INGEST__HOTS": "x",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.ingest", env=environment, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )

    _, told = await asyncio.wait_for(process.communicate(), WAIT_S)

    assert process.returncode == 2
    for name in (b"HEADRACE_INGEST__PORT", b"HEADRACE_NO_SUCH", b"HEADRACE_INGEST__HOTS"):
        assert name in told
    assert b"Traceback" not in told


async def _refuses_connections(port: int) -> None:
    """Wait until the process has stopped to listen: it has taken notice of the signal."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                async with raw_connection(port) as raw:
                    await raw.closed()
            except ConnectionError:
                return
