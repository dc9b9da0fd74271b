"""The store goes away, comes back, hangs, and loses connections; everything resumes by itself."""

import asyncio
import os
import signal

import aiohttp
import pytest

from contracts.positions import entry_ms
from tests.harness import Fragile, eventually
from tests.harness.up import LEASE_S
from tests.notifier.receiver import Receiver, answer
from tests.servers import Server
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")

OUTAGE_S = float(os.environ.get("STORY_OUTAGE_S", LEASE_S + 1.5))  # longer than every lease; 15 says it all


async def outage(server: Server, seconds: float) -> None:
    """Stop the store, leave it away for a while, start it on the same files."""
    await asyncio.to_thread(server.stop)
    await asyncio.sleep(seconds)  # the outage itself is the event
    await asyncio.to_thread(server.start)


async def test_no_lease_is_lost_while_the_store_is_down_for_longer_than_a_lease(
    own_server: Server, start_stack: Starter
) -> None:
    """Field cases 45 and 117: four jobs run on, a delayed one is due in the outage and runs soon after it."""
    stack = await start_stack(store_url=own_server.url, workers=2, devices="cpu*2")
    steps = int(OUTAGE_S / 0.05) + 40
    running = [await stack.submit("slow", {"steps": steps, "step_s": 0.05}) for _ in range(4)]
    for job in running:
        await stack.wait_for(job, "job.progress")
    delayed = await stack.submit("noop", runAt=stack.later(1))

    await outage(own_server, OUTAGE_S)
    back_ms = await stack.store_ms()
    ends = await stack.wait_for_ends()

    assert ends == ["job.completed"] * 5
    for job in running:
        assert [entry.type for entry in stack.log.of(job, "job.started", "job.lease_lost")] == ["job.started"]
    assert [entry for entry in stack.log.entries if entry.type == "worker.lost"] == []
    assert entry_ms(stack.log.of(delayed)[-1].position) - back_ms < 6_000
    await stack.audit()


async def test_every_service_resumes_after_each_of_several_restarts_of_the_store(fragile: Fragile) -> None:
    """Field case 117: with jobs running and idle in turn; readiness is red while the store is away; nobody restarts."""
    before = [process.pid for process in fragile.processes()]

    async def red() -> bool:
        return (await fragile.request("GET", "/readyz")).status == 503

    async with Receiver([answer(200)]) as receiver:
        for round_number in range(1, 3):
            if round_number % 2:
                job = await fragile.submit("slow", {"steps": 20, "step_s": 0.05})
                await fragile.wait_for(job, "job.started")
            await asyncio.to_thread(fragile.server.stop)
            await eventually(red, "/readyz is red")
            await asyncio.to_thread(fragile.server.start)
            await fragile.wait_ready(10)
            await fragile.submit("noop", webhookUrl=receiver.url(), webhookEvents=["job.completed"])
            await fragile.wait_for_ends(limit_s=15)
            await receiver.wait_for_requests(round_number)
    assert set(await fragile.wait_for_ends()) == {"job.completed"}
    assert [process.pid for process in fragile.processes()] == before
    await fragile.audit()


async def test_a_post_without_a_store_is_refused_in_time_and_makes_no_job_later(fragile: Fragile) -> None:
    """Field case 119: away or frozen, the answer is 503 with Retry-After in less than two seconds."""
    loop = asyncio.get_running_loop()

    async def refused(key: str) -> None:
        begun = loop.time()
        answer = await fragile.post_job("noop", again=key)
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) >= 1
        assert loop.time() - begun < 2.0

    fragile.server.send(signal.SIGSTOP)
    await asyncio.gather(*(refused(f"frozen-{number}") for number in range(5)))
    fragile.server.send(signal.SIGCONT)
    await asyncio.to_thread(fragile.server.stop)
    await asyncio.gather(*(refused(f"away-{number}") for number in range(5)))
    await asyncio.to_thread(fragile.server.start)
    await fragile.wait_ready()
    repeated = await fragile.post_job("noop", again="frozen-0")
    again = await fragile.post_job("noop", again="frozen-0")

    assert (repeated.status, again.status, again.json["id"]) == (201, 200, repeated.json["id"])
    fragile.jobs = [repeated.json["id"]]
    await fragile.wait_for_ends()
    assert [entry.subject for entry in fragile.log.entries if entry.type == "job.created"] == fragile.jobs
    await fragile.audit()


async def test_webhooks_that_wait_for_a_retry_survive_an_outage(fragile: Fragile) -> None:
    """Field case 120: the loop that sends them never gives up."""
    async with Receiver([*[answer(500)] * 10, answer(200)]) as receiver:
        for _ in range(10):
            await fragile.submit("noop", webhookUrl=receiver.url(), webhookEvents=["job.completed"])
        await receiver.wait_for_requests(10)
        await fragile.wait_for_ends()

        await outage(fragile.server, 4)

        def delivered() -> set[str]:
            return {entry.subject for entry in fragile.log.entries if b'"status":200' in entry.data}

        await fragile.log.wait_until(lambda: len(delivered()) == 10, "all are delivered")
        by_id = {request.headers["webhook-id"] for request in receiver.requests}
    assert len(by_id) == 10
    await fragile.audit()


async def test_a_blocked_read_on_a_dead_connection_is_given_up(fragile: Fragile) -> None:
    """Field case 118: a connection that swallows everything without a word; the next job is taken within 15 s."""
    dead = fragile.proxy.swallow(b"GROUP\r\n$3\r\ngpu")
    await asyncio.wait_for(dead.met.wait(), 20)  # the worker waits on it from now on
    job = await fragile.submit("noop")
    dead.lift()

    await fragile.wait_for(job, "job.completed", limit_s=15)
    await fragile.wait_for_ends()
    await fragile.audit()


async def test_dropped_connections_leave_cancels_and_offers_working(fragile: Fragile) -> None:
    """Field case 127: all connections are killed while a job runs; a cancel still reaches it within two seconds."""
    job = await fragile.submit("slow", {"steps": 400, "step_s": 0.05})
    await fragile.wait_for(job, "job.progress")

    for kind in ("normal", "pubsub"):
        await fragile.store.client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    await fragile.wait_ready()
    assert (await fragile.cancel(job)).status == 202

    await fragile.wait_for(job, "job.cancelled")
    assert fragile.log.ms_between(job, "job.cancel_requested", "job.cancelled") < 2_000
    await fragile.submit("noop")
    assert await fragile.wait_for_ends() == ["job.cancelled", "job.completed"]
    await fragile.audit()


async def test_the_next_start_never_overtakes_the_release_of_the_slot(fragile: Fragile) -> None:
    """The end of a job cannot be written while the next offer comes in: by the log, too, a slot holds one attempt."""
    ending = await fragile.submit("slow", {"steps": 1, "step_s": 6})
    await fragile.wait_for(ending, "prompt.encoded")
    offers = fragile.proxy.hold_replies(b"GROUP\r\n$3\r\ngpu")  # the worker's reads of its work stream
    await asyncio.wait_for(offers.met.wait(), 20)
    following = await fragile.submit("noop")
    await fragile.wait_for(following, "job.assigned")
    lost = fragile.proxy.cut_at(b"hr_emit")
    await asyncio.wait_for(lost.met.wait(), 20)

    offers.lift()
    await asyncio.wait_for(offers.answered.wait(), 20)
    seen = lost.hits
    await eventually(lambda: lost.hits > seen + 1, "the end was tried again, and again in vain")
    lost.lift()

    assert await fragile.wait_for_ends() == ["job.completed", "job.completed"]
    await fragile.audit()


async def test_a_limit_on_clients_loses_no_job(fragile: Fragile) -> None:
    """Field case 126: one connection more and no further; jobs wait at worst."""
    connected = int((await fragile.store.client.info("clients"))["connected_clients"])
    await fragile.store.client.config_set("maxclients", connected + 1)

    answers = await asyncio.gather(*(fragile.post_job("noop", again=f"job-{number}") for number in range(10)))
    await fragile.store.client.config_set("maxclients", 10_000)
    for number, first in enumerate(answers):
        repeated = await fragile.post_job("noop", again=f"job-{number}")
        assert first.status in (201, 503)
        fragile.jobs.append(repeated.json["id"])

    assert set(await fragile.wait_for_ends()) == {"job.completed"}
    assert len(set(fragile.jobs)) == 10
    await fragile.audit()


async def test_an_idle_stack_keeps_its_connections_and_starts_a_job_at_once(fragile: Fragile) -> None:
    """Field case 115: reads that block for longer than a socket's time-out neither fail nor reconnect."""
    await fragile.submit("noop")
    await fragile.wait_for_ends()
    before = await fragile.store.client.info()
    idle = await fragile.submit("noop", runAt=fragile.later(8))

    await fragile.wait_for(idle, "job.started")
    after = await fragile.store.client.info()

    # A call that meets another may open a connection more, which stays; a reader that loses its own opens another.
    opened = int(after["total_connections_received"]) - int(before["total_connections_received"])
    closed = opened - (int(after["connected_clients"]) - int(before["connected_clients"]))
    assert closed <= 1
    assert fragile.log.ms_between(idle, "job.created", "job.started") < 9_000
    await fragile.wait_for_ends()
    await fragile.audit()


async def test_groups_and_consumers_do_not_pile_up_over_restarts(fragile: Fragile) -> None:
    """Field cases 122 and 123: fixed groups, and no trace of workers that are gone, however they went."""
    for number in range(3):
        known = len([entry for entry in fragile.log.entries if entry.type == "worker.registered"])
        fragile.signal("gpu_worker", signal.SIGKILL if number % 2 else signal.SIGTERM)
        await fragile.log.wait_until(
            lambda known=known: len([e for e in fragile.log.entries if e.type == "worker.registered"]) > known,
            "the next worker is there",
        )

    async def tidy() -> bool:
        work = [key async for key in fragile.store.client.scan_iter("hr:{default}:work:*")]
        return len(work) == len(await fragile.store.workers("default")) == 1

    await eventually(tidy, "one work stream for one worker")
    groups = await fragile.store.client.xinfo_groups("hr:{default}:log")
    assert sorted(group["name"] for group in groups) == [b"notifier", b"scheduler"]
    await fragile.submit("noop")
    await fragile.wait_for_ends()
    await fragile.audit()


async def test_a_store_that_may_evict_or_keeps_nothing_is_not_called_ready_in_silence(fragile: Fragile) -> None:
    """Field cases 121 and 124: an eviction policy that eats keys, and no file, are said where an operator looks."""

    async def told(word: str) -> bool:
        try:
            answer = await fragile.request("GET", "/readyz")
        except aiohttp.ClientError:
            return False
        return word in str(answer.json) or word in fragile.said()

    await fragile.store.client.config_set("maxmemory-policy", "allkeys-lru")
    await eventually(lambda: told("allkeys-lru"), "the eviction policy is named")
    await fragile.store.client.config_set("maxmemory-policy", "noeviction")
    await fragile.store.client.config_set("appendonly", "no")
    await eventually(lambda: told("appendonly"), "the missing file is named")
