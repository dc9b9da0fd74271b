"""The notifier as a process: killed, stopped, and left without its store."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import IO

import orjson
import pytest

from contracts import ids
from contracts.store import Store, keys
from tests.notifier.endpoints import plan, planned
from tests.notifier.hooked import POOL, admit, finish, log_of, make_tenant, notifier, settled, until
from tests.notifier.receiver import Receiver, after, answer, silent
from tests.servers import Server

KILLS = int(os.environ.get("HEADRACE_TEST_KILLS", "4"))


class Process:
    """`python -m services.notifier`, configured by the environment alone."""

    def __init__(
        self,
        url: str,
        extra: Mapping[str, str] = MappingProxyType({}),
        log: int | IO[bytes] = subprocess.DEVNULL,
        **settings: str,
    ) -> None:
        self._log = log
        webhook = {
            "TIMEOUT_S": "2",
            "CIRCUIT_S": "0.2",
            "SCHEDULE": "0,0.2,0.2,0.2,0.2,0.2",
            "ALLOW_PRIVATE": "loopback",
        } | settings
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        chosen = {f"HEADRACE_WEBHOOK__{name}": value for name, value in webhook.items()}
        self._environment = inherited | chosen | {"HEADRACE_REDIS__URL": url} | dict(extra)

    async def __aenter__(self) -> "Process":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            await self.stop(signal.SIGKILL)

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.notifier", env=self._environment, stderr=self._log
        )

    async def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        async with asyncio.timeout(30):
            return await self.process.wait()


async def test_a_notifier_killed_again_and_again_loses_no_delivery(store, store_url):
    """Field cases 74 and 92: 500 deliveries, most of them due at other times, kill -9 at random moments.

    All are delivered at least once, each with an intact attempt count; one that starts again goes on where the last one
    was, so only what was under way at a kill comes a second time, with the id it had.
    """
    receiver = Receiver([*[answer(503)] * 20, answer(200)])
    async with receiver, Process(store_url, TIMEOUT_S="1") as process:
        now_ms = 1000 * (await store.client.time())[0]
        later = [ids.mint_job_id(1_764_457_100_000, number, "aa") for number in range(420)]
        await plan(store, [
            planned("anonlater0001", 1, job_id=job_id, url=receiver.url(), due_ms=now_ms + 10 * number)
            for number, job_id in enumerate(later)
        ])  # fmt: skip
        for round_number in range(KILLS):
            for _ in range(80 // KILLS):
                await admit(store, receiver.url(), events=["job.created"])
            await receiver.wait_for_requests(len(receiver.requests) + 1 + round_number)
            await process.stop(signal.SIGKILL)
            await process.start()
        jobs = {entry.subject for entry in await log_of(store, "job.created")}
        await until(lambda: settled(store), timeout_s=60)

    attempted = [entry.event() for entry in await log_of(store, "webhook.attempted")]
    delivered = [event.job_id for event in attempted if event.outcome == "status_200"]
    jobs |= {*later}
    assert len(jobs) == 500
    assert sorted(delivered) == sorted(jobs)
    for job_id in jobs:
        numbers = [event.attempt for event in attempted if event.job_id == job_id]
        assert numbers == list(range(1, len(numbers) + 1))
    assert len(receiver.requests) - len(attempted) <= 60 * KILLS  # under way at a kill; all that was before is hundreds
    bodies: dict[str, set[bytes]] = {}
    for request in receiver.requests:
        bodies.setdefault(request.headers["webhook-id"], set()).add(request.body)
    assert all(len(variants) == 1 for variants in bodies.values())
    assert bodies.keys() == {ids.event_id(job_id, 1) for job_id in jobs}


async def test_a_notifier_killed_in_mid_delivery_is_followed_by_one_with_the_same_id(store, store_url):
    """Kill story: the attempt under way is made again under its own number, with the id and bytes it had."""
    never = asyncio.Event()
    async with Receiver([after(never, answer(200)), answer(200)]) as receiver:
        await admit(store, receiver.url(), events=["job.created"])
        async with Process(store_url, TIMEOUT_S="1") as process:
            await receiver.wait_for_requests(1)
            await process.stop(signal.SIGKILL)
            await process.start()
            first, second = (await receiver.wait_for_requests(2, timeout_s=60))[:2]
            await until(lambda: settled(store))
    assert (first.headers["webhook-id"], first.body) == (second.headers["webhook-id"], second.body)
    assert second.headers["webhook-attempt"] == "1"
    assert len(await log_of(store, "webhook.attempted")) == 1


async def test_one_that_stood_still_and_wakes_settles_nothing(store, store_url):
    """Stopped for longer than its claim, in mid-attempt: another sends, and what the late one heard does not count."""
    released = asyncio.Event()
    async with Receiver([after(released, answer(500)), answer(200)]) as receiver:
        [delivery_id] = await plan(store, [planned("anonstill0001", 1, url=receiver.url())])
        async with Process(store_url, TIMEOUT_S="60") as process:
            await receiver.wait_for_requests(1)
            process.process.send_signal(signal.SIGSTOP)
            async with notifier(store_url):
                await receiver.wait_for_requests(2)
                await until(lambda: settled(store))
            row = await store.deliveries.read(POOL, delivery_id)
            released.set()
            process.process.send_signal(signal.SIGCONT)
            await receiver.wait_for(lambda: receiver.open_connections == 0)
            assert await process.stop() == 0
    assert await store.deliveries.read(POOL, delivery_id) == row
    assert (row["state"], row["try"]) == ("delivered", "1")
    assert [entry.event().outcome for entry in await log_of(store, "webhook.attempted")] == ["status_200"]
    assert (await store.deliveries.endpoint(POOL, "anonstill0001")).row == 0
    assert await settled(store)
    assert [request.headers["webhook-attempt"] for request in receiver.requests] == ["1", "1"]


async def test_sigterm_ends_it_in_order_during_a_back_off(store, store_url):
    """Field case 31: SIGTERM during a 30 s back-off exits within the grace, with 0."""
    async with Receiver([answer(503)]) as receiver:
        await admit(store, receiver.url(), events=["job.created"])
        async with Process(store_url, SCHEDULE="0,30") as process:
            await until(lambda: log_of(store, "webhook.attempted"))
            begun_s = time.monotonic()
            assert await process.stop() == 0
    assert time.monotonic() - begun_s < 8
    assert await store.client.zcard(keys.due(POOL)) == 1


async def test_a_pool_that_comes_later_is_served_by_the_same_process_begun_anew(store, store_url):
    """The set of pools changed: it stops in order, runs itself again, and ends with 0 when it is told to."""
    async with Receiver([answer(200)]) as receiver, Process(store_url) as process:
        await admit(store, receiver.url(), events=["job.created"])
        await receiver.wait_for_requests(1)
        await store.open_pool("later")
        await admit(store, receiver.url(), events=["job.created"], pool="later")
        await admit(store, receiver.url(), events=["job.created"])
        await receiver.wait_for_requests(3)
        await until(lambda: settled(store))
        assert process.process.returncode is None
        assert await process.stop() == 0
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 3
    assert await store.client.xinfo_consumers(keys.log("later"), keys.GROUP_NOTIFIER) == []


@pytest.mark.slow  # it waits for a store that hangs
async def test_sigterm_while_the_store_hangs_ends_within_the_time_of_a_stop(own_server: Server):
    """An event that cannot be stored is left to others; calls that hang are not waited for. Once 44 s."""
    store = Store(own_server.url)
    await store.directory.open()
    await store.open_pool(POOL)
    await make_tenant(store)
    async with Receiver([answer(200)]) as receiver, Process(own_server.url) as process:
        await admit(store, receiver.url(), events=["job.created"])
        await receiver.wait_for_requests(1)
        await admit(store, receiver.url(), events=["job.created"])
        own_server.send(signal.SIGSTOP)
        begun_s = time.monotonic()
        assert await process.stop() == 0
    assert time.monotonic() - begun_s < 15
    own_server.send(signal.SIGCONT)
    await store.aclose()


async def test_sigterm_in_mid_attempt_is_no_failed_attempt(store, store_url):
    """Field case 89: a shutdown in mid-attempt is not counted; the delivery is due at once for another process."""
    async with Receiver([silent, answer(200)]) as receiver:
        await admit(store, receiver.url(), events=["job.created"])
        async with Process(store_url, TIMEOUT_S="60") as process:
            await receiver.wait_for_requests(1)
            assert await process.stop() == 0
        assert await log_of(store, "webhook.attempted") == []
        async with notifier(store_url):
            await receiver.wait_for_requests(2, timeout_s=5)
            await until(lambda: settled(store))


async def test_retries_outlive_an_outage_of_the_store(own_server: Server):
    """Field cases 117 and 120: ten deliveries wait for their retry while the store is away; all are delivered."""
    store = Store(own_server.url)
    await store.directory.open()
    await store.open_pool(POOL)
    await make_tenant(store)
    async with (
        Receiver([*[answer(503)] * 10, answer(200)]) as receiver,
        notifier(own_server.url, delays_s=(0, 0.5, 0.5, 0.5)),
    ):
        for _ in range(10):
            await admit(store, receiver.url(), events=["job.created"])
        await receiver.wait_for_requests(10)
        own_server.stop(signal.SIGKILL)
        await asyncio.sleep(3)  # the outage itself: nothing can be waited for
        own_server.start()
        await receiver.wait_for_requests(20, timeout_s=60)
        await until(lambda: settled(store), timeout_s=60)
        later = await admit(store, receiver.url(), events=["job.created"])
        await receiver.wait_for(lambda: later in jobs_told(receiver), timeout_s=60)
    await store.aclose()
    assert len(jobs_told(receiver)) == 11


def jobs_told(receiver: Receiver) -> Counter[str]:
    return Counter(orjson.loads(request.body)["jobId"] for request in receiver.requests)


async def test_an_attempt_made_during_an_outage_is_recorded_when_the_store_is_back(own_server: Server):
    released = asyncio.Event()
    store = Store(own_server.url)
    await store.directory.open()
    await store.open_pool(POOL)
    await make_tenant(store)
    async with (
        Receiver([after(released, answer(200)), answer(500)]) as receiver,
        notifier(own_server.url, timeout_s=60),
    ):
        await admit(store, receiver.url(), events=["job.created"])
        await receiver.wait_for_requests(1)
        own_server.stop(signal.SIGKILL)
        released.set()
        await receiver.wait_for(lambda: receiver.open_connections == 0)
        own_server.start()
        await until(lambda: quietly(settled, store), timeout_s=60)
        attempted = [entry.event() for entry in await log_of(store, "webhook.attempted")]
    await store.aclose()
    assert [event.outcome for event in attempted] == ["status_200"]
    assert len(receiver.requests) == 1


async def quietly(condition, store: Store) -> bool:
    try:
        return await condition(store)
    except (OSError, ConnectionError):
        return False


async def test_a_notifier_that_starts_before_its_store_serves_when_that_comes(own_server: Server):
    own_server.stop()
    async with Receiver([answer(200)]) as receiver, Process(own_server.url):
        own_server.start()
        store = Store(own_server.url)
        await store.directory.open()
        await store.open_pool(POOL)
        await make_tenant(store)
        job_id = await admit(store, receiver.url())
        await finish(store, job_id)
        await receiver.wait_for_requests(2, timeout_s=60)
        await store.aclose()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"HEADRACE_REDIS__URL": ""}, ["HEADRACE_REDIS__URL"]),
        (
            {"HEADRACE_WEBHOOK__NAMESERVERS": "dns.example", "HEADRACE_WEBHOOK__PROXY": "https://proxy.example"},
            ["HEADRACE_WEBHOOK__NAMESERVERS", "HEADRACE_WEBHOOK__PROXY"],
        ),
        ({"HEADRACE_WEBHOOK__SCHEDULE": "0,-1", "HEADRACE_NOPE": "1"}, ["HEADRACE_WEBHOOK__SCHEDULE", "HEADRACE_NOPE"]),
        ({"HEADRACE_REDIS__URL": "redis+sentinel://a"}, ["HEADRACE_REDIS__URL"]),
    ],
)
async def test_every_fault_of_the_configuration_is_named_and_the_exit_code_is_two(settings, words):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.notifier", env=inherited | settings, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert all(word in errors.decode() for word in words)
