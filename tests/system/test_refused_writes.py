"""The store answers, but takes no write: its disk is full, or it misses its replicas. Nobody dies of it."""

import asyncio

import pytest

from contracts.errors import StoreUnavailable
from tests.harness import Fragile, eventually
from tests.harness.up import LEASE_S

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_every_service_waits_while_the_store_refuses_writes_and_goes_on_afterwards(fragile: Fragile) -> None:
    """Longer than a lease, with a job that runs, one that ends meanwhile, one that waits and one that is refused."""
    before = [process.pid for process in fragile.processes()]
    running = await fragile.submit("slow", {"steps": 200, "step_s": 0.05})
    await fragile.wait_for(running, "job.progress")
    await fragile.submit("noop")
    asking = fragile.store.client
    assert await asking.config_set("min-replicas-to-write", 1)  # NOREPLICAS, as MISCONF is for a full disk

    async def refused() -> bool:
        answer = await fragile.post_job("noop", again="refused")
        assert (answer.status, answer.json.get("code")) in ((503, "log_unavailable"), (503, "unconfirmed")), answer
        return (await fragile.request("GET", "/readyz")).status == 503

    await eventually(refused, "the POST and readiness are 503")
    await asyncio.sleep(LEASE_S + 1)  # the state itself is the event: nobody could renew anything meanwhile
    assert await asking.config_set("min-replicas-to-write", 0)
    await fragile.wait_ready(10)
    accepted = await fragile.post_job("noop", again="refused")
    fragile.jobs.append(accepted.json["id"])

    assert set(await fragile.wait_for_ends()) == {"job.completed"}
    assert [process.pid for process in fragile.processes()] == before
    assert "Traceback" not in fragile.said()
    assert fragile.log.of(running, "job.lease_lost") == []
    await fragile.audit()


async def test_a_call_that_is_refused_for_now_says_that_the_store_is_away(fragile: Fragile) -> None:
    client = fragile.store.client
    await client.config_set("min-replicas-to-write", 1)
    try:
        with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
            await fragile.store.leadership.lead("default", "somebody", 1_000)
    finally:
        await client.config_set("min-replicas-to-write", 0)
