"""Readiness: a cached verdict that neither flaps nor lies."""

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from contracts.errors import StoreUnavailable
from contracts.store.vitals import Vitals
from services.ingest.readiness import LEADERLESS_S, STALE_AFTER_S, Readiness
from services.ingest.service import IngestService
from tests.ingest.api import Api, running_api, settings_for
from tests.servers import Server

GOOD = Vitals(
    now_ms=1_000_000, is_writable=True, memory_ratio=0.1, delayed_fsync_count=0, eviction_policy="noeviction",
    keeps_file=True, log_bytes={"default": 10}, leader_until_ms={"default": 1_003_000},
)  # fmt: skip


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def made(clock: Clock) -> Readiness:
    return Readiness(clock=clock, wall_ms=lambda: 1_000_500, memory_ratio_limit=0.8, log_bytes_limit=1_000)


async def see(readiness: Readiness, vitals: Vitals | Exception, times: int = 1) -> bool:
    async def probe() -> Vitals:
        if isinstance(vitals, Exception):
            raise vitals
        return vitals

    for _ in range(times):
        await readiness.run_once(probe)
    return readiness.verdict[0]


async def test_one_bad_probe_does_not_turn_it_and_two_do() -> None:
    """Field case 142: no flapping."""
    readiness = made(Clock())
    assert await see(readiness, GOOD)

    assert await see(readiness, StoreUnavailable("slow"))
    assert await see(readiness, GOOD)
    assert not await see(readiness, StoreUnavailable("away"), times=2)
    assert not await see(readiness, GOOD)
    assert await see(readiness, GOOD)


async def test_it_is_not_ready_before_it_was_probed() -> None:
    assert made(Clock()).verdict == (False, "not probed yet")


async def test_a_stale_verdict_is_unhealthy() -> None:
    clock = Clock()
    readiness = made(clock)
    await see(readiness, GOOD)

    clock.now_s += STALE_AFTER_S + 1

    assert readiness.verdict == (False, "the verdict is stale")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"is_writable": False}, "log_unavailable"),
        ({"memory_ratio": 0.81}, "storage_full"),
        ({"log_bytes": {"default": 1_001}}, "log_backlog"),
        ({"eviction_policy": "allkeys-lru"}, "store_may_evict"),
    ],
)
async def test_a_store_that_cannot_take_or_keep_work_is_red(change: dict[str, object], reason: str) -> None:
    """Field case 121: a policy that eats keys is not called ready."""
    readiness = made(Clock())
    await see(readiness, GOOD)

    assert not await see(readiness, replace(GOOD, **change), times=2)
    assert readiness.reason.startswith(reason)


async def test_admission_hears_of_a_full_store_at_the_first_probe() -> None:
    readiness = made(Clock())

    await see(readiness, replace(GOOD, memory_ratio=0.81))
    assert readiness.refuses_admission("default") == "storage_full"
    await see(readiness, replace(GOOD, log_bytes={"default": 1_001}))
    assert (readiness.refuses_admission("default"), readiness.refuses_admission("large")) == ("log_backlog", None)


async def test_a_pool_without_a_leader_for_long_is_red() -> None:
    """Field case 128: the scheduler is away while everything else is green."""
    clock = Clock()
    readiness = made(clock)
    leaderless = replace(GOOD, leader_until_ms={"default": 0})
    assert await see(readiness, leaderless)

    clock.now_s += LEADERLESS_S + 1
    assert not await see(readiness, leaderless, times=2)
    assert readiness.reason.startswith("no_scheduler: pool default")
    assert await see(readiness, GOOD, times=2)


async def test_what_a_scheduler_set_aside_is_red_until_it_is_gone() -> None:
    readiness = made(Clock())
    assert await see(readiness, GOOD)

    assert not await see(readiness, replace(GOOD, set_aside={"default": 2}), times=2)
    assert readiness.reason.startswith("scheduler_mismatch: pool default has set 2")
    checks = readiness.document()["checks"]
    assert isinstance(checks, dict)
    assert checks["scheduler"] == {"default": {"leads": True, "setAside": 2}}
    assert await see(readiness, replace(GOOD, set_aside={"default": 0}), times=2)


async def test_delayed_fsyncs_that_keep_rising_are_red_and_old_ones_are_not() -> None:
    readiness = made(Clock())
    assert await see(readiness, replace(GOOD, delayed_fsync_count=50), times=3)

    for count in (51, 52, 53):
        await see(readiness, replace(GOOD, delayed_fsync_count=count))

    assert not readiness.verdict[0]


async def test_a_store_without_a_file_is_warned_about() -> None:
    """Field case 124."""
    readiness = made(Clock())
    await see(readiness, replace(GOOD, keeps_file=False))

    checks = readiness.document()["checks"]
    assert isinstance(checks, dict)
    assert "appendonly is off" in checks["store"]["warnings"][0]


async def test_a_store_that_is_away_answers_503_in_time_and_nothing_comes_of_it_later(
    own_server: Server, tmp_path: Path
) -> None:
    """Field case 119: the store hangs; the caller hears within two seconds, and no job appears afterwards."""
    key = {"Idempotency-Key": "order-17"}
    async with running_api(settings_for(own_server.url, tmp_path, ingest={"store_timeout_s": 1.5})) as api:
        await api.service.context.readiness.run_once(api.service._probe)
        own_server.send(signal.SIGSTOP)
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        refused = await asyncio.gather(*(api.submit() for _ in range(20)), api.submit(headers=key))
        spent_s = loop.time() - started_s
        own_server.send(signal.SIGCONT)

        assert {answer.status for answer in refused} == {503}
        assert {answer.code for answer in refused} == {"unconfirmed", "log_unavailable"}
        assert refused[-1].code == "log_unavailable"  # it waited for the claim of its key: there can be no job
        assert spent_s < 2
        made = await _until_accepted(api, key)
        again = await api.submit(headers=key)
        listed = await api.get("/v1/jobs")

    assert again.body["id"] == made
    assert [job["id"] for job in listed.body["data"]] == [made]


async def test_readiness_follows_the_store_and_liveness_does_not(own_server: Server, tmp_path: Path) -> None:
    async with running_api(settings_for(own_server.url, tmp_path)) as api:
        await _until_ready(api, 200)
        own_server.stop()
        await _until_ready(api, 503)
        assert (await api.get("/healthz")).status == 200
        refused = await api.submit()
        assert (refused.status, refused.headers["retry-after"]) == (503, "2")
        own_server.start()
        await _until_ready(api, 200)

        assert (await api.submit()).status == 201


async def test_a_slow_store_leaves_readiness_green(store_server: Server, tmp_path: Path) -> None:
    """Field case 142: 800 ms of latency are slow, not away."""
    line = SlowLine(store_server)
    settings = settings_for(f"unix://{tmp_path}/slow.sock", tmp_path)
    async with await line.open(tmp_path / "slow.sock"), running_api(settings) as api:
        await api.service.context.readiness.run_once(api.service._probe)  # over connections that are open already
        line.delay_s = 0.8
        for _ in range(2):
            await api.service.context.readiness.run_once(api.service._probe)

        assert (await api.get("/readyz")).status == 200
        assert (await api.get("/healthz")).status == 200
        line.delay_s = 0


async def test_the_service_starts_while_the_store_is_away(own_server: Server, tmp_path: Path) -> None:
    own_server.stop()
    service = IngestService(settings_for(own_server.url, tmp_path))
    await service.start()
    try:
        async with aiohttp.ClientSession() as session:
            api = Api(service, session, key="sk_live_a_b")
            answers = [await api.get(path) for path in ("/healthz", "/readyz", "/v1/limits")]
    finally:
        await service.stop()

    assert [answer.status for answer in answers] == [200, 503, 503]


async def _until_accepted(api: Api, headers: dict[str, str]) -> str:
    """Repeat a submission as a caller would, until the store is back."""
    async with asyncio.timeout(20):
        while (answer := await api.submit(headers=headers)).status == 503:
            continue
    assert answer.status in (200, 201)
    return str(answer.body["id"])


async def _until_ready(api: Api, status: int) -> None:
    async with asyncio.timeout(20):
        while (await api.get("/readyz")).status != status:
            await api.service.context.readiness.run_once(api.service._probe)


class SlowLine:
    """A way to the store whose answers take `delay_s`."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.delay_s = 0.0

    async def open(self, path: Path) -> asyncio.AbstractServer:
        return await asyncio.start_unix_server(self._serve, str(path))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(str(self._server.socket))
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer, slowly=True), return_exceptions=True)

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, slowly: bool = False) -> None:
        while data := await source.read(65_536):
            if slowly and self.delay_s:
                await asyncio.sleep(self.delay_s)  # the latency is what the test is about
            target.write(data)
        target.close()
