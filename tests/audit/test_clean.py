"""What is right is found right, while it moves on and after it was trimmed."""

import asyncio
import random

import orjson
import pytest

from contracts import events as ev
from contracts.audit import Scope, Verdict
from contracts.deliveries import Attempted, Settlement
from contracts.store import keys
from contracts.store.log import Poison
from tests.archivist.rig import AT_ONCE, POOL, TENANT, Pool
from tests.audit.rig import ENDPOINT, Lived, attempted, edited


async def test_a_pool_that_was_left_alone_is_right(lived: Lived) -> None:
    verdict = await lived.verify()

    assert (verdict.findings.kept, verdict.ok, verdict.chain_ok) == ([], True, True)
    assert [text for each in verdict.projections for text in each.sample] == []
    assert {each.name: each.rows for each in verdict.projections} == {
        "jobs": 13, "lists": 13, "bodies": 13, "dedup": 0, "counters": 3, "deliveries": 1, "dead_letters": 0,
        "ended": 6, "queues": 1,
    }  # fmt: skip
    assert verdict.events == len(await lived.entries())
    assert verdict.archived > 20


async def test_keys_webhooks_and_bodies_as_the_api_makes_them_are_right(lived: Lived) -> None:
    """A key that is let go and taken again, a webhook that is planned, one that was tried, one set aside."""
    first = await lived.submitted(dedup="ab" * 16)
    await lived.pool.cancel(first)
    await lived.submitted(dedup="ab" * 16)
    await lived.hooked()
    job_id, delivery = await lived.hooked()
    settled = Settlement(delivery, ENDPOINT, 1, {"state": "delivered"}, Attempted(True, "http_200", 3), keep_s=60)
    await lived.store.deliveries.settle(POOL, settled, [attempted(delivery, job_id, 1, None)])
    await lived.client.delete(keys.delivery(POOL, delivery))  # its time to be kept is over
    given_up = await lived.delivered(lived.ended[1], 1_000_000_000_000)  # by an erasure, or behind a circuit
    said = ev.WebhookExhausted(
        delivery_id=given_up, job_id=lived.ended[1], event_type="job.cancelled", attempts=1, outcome="erased"
    )
    await lived.store.note(POOL, given_up, said, "x")
    await lived.client.delete(keys.delivery(POOL, given_up))
    _, unplannable = await lived.hooked()
    await lived.client.delete(keys.delivery(POOL, unplannable))
    (position, _) = (await lived.entries())[-1]
    await lived.store.deliveries.plan(POOL, "", [], [], [Poison(position, "cannot be planned")])

    verdict = await lived.verify()

    assert (verdict.findings.kept, [text for each in verdict.projections for text in each.sample]) == ([], [])
    rows = {each.name: each.rows for each in verdict.projections}
    assert (rows["dedup"], rows["bodies"], rows["deliveries"]) == (2, 18, 4)


async def test_an_audit_of_one_job_or_one_tenant_looks_at_nothing_else(lived: Lived) -> None:
    """Field case 79: a rebuild can be limited to one job or tenant."""
    other = await lived.submitted(tenant="t_b")
    await lived.trim_all()
    for job_id in (lived.open[0], other):
        await lived.client.hset(keys.job(POOL, job_id), "pr", "high")
    await lived.client.hincrby(keys.usage(POOL), f"b:{TENANT}", 1)

    job = await lived.verify(Scope(job_id=lived.open[0]))
    sound = await lived.verify(Scope(job_id=lived.ended[0]))
    stranger = await lived.verify(Scope(job_id=lived.open[0], tenant_id="t_b"))
    tenant = await lived.verify(Scope(tenant_id="t_b"))

    assert (told(job), job.events, told(sound), told(stranger)) == ([("jobs", 1)], 1, [], [])
    assert (told(tenant), tenant.as_json()["chainOk"]) == ([("jobs", 1)], None)
    assert told(await lived.verify(Scope(tenant_id=TENANT))) == [("jobs", 1), ("counters", 1)]
    assert told(await lived.verify()) == [("jobs", 2), ("counters", 1)]


async def test_a_stretch_of_the_log_is_audited_without_the_rest(lived: Lived) -> None:
    """What lies outside is not looked at; inside, each fault is found where a whole audit finds it."""
    first, second, *_ = await lived.sealed()
    bad = lived.lines(second)
    bad[2] = edited(bad[2], b"t_a", b"t_b")
    lived.put(second, bad)

    before = await lived.verify(Scope(until=first.last))
    within = await lived.verify(Scope(after=first.last, until=second.last))
    behind = await lived.verify(Scope(after=second.last))

    assert ([each.findings.first for each in (before, within, behind)]) == ["", orjson.loads(bad[2])["p"], ""]
    assert [before.events, within.events] == [7, 7]
    assert not any(each.rows for each in before.projections)


def told(verdict: Verdict) -> list[tuple[str, int]]:
    return [(each.name, each.differing) for each in verdict.projections if each.differing]


async def test_it_is_right_as_well_when_the_log_is_trimmed(lived: Lived) -> None:
    await lived.trim_all()

    verdict = await lived.verify()

    assert (verdict.findings.kept, verdict.ok) == ([], True)
    assert len(await lived.entries()) < verdict.events


async def test_jobs_that_come_go_and_are_forgotten_meanwhile_are_no_finding(pool: Pool) -> None:
    """Each batch is compared at the position at which it was read."""
    stop, chance = asyncio.Event(), random.Random(6)

    async def work() -> None:
        waiting: list[str] = []
        while not stop.is_set():
            waiting += [await pool.job() for _ in range(3)]
            for _ in range(2):
                await pool.cancel(waiting.pop(chance.randrange(len(waiting))))

    async def archive() -> None:
        archivist = pool.archivist(config=AT_ONCE)
        while not stop.is_set():
            await pool.snapshot_here()
            await pool.plan()
            await archivist.run_once()
            await asyncio.sleep(0)

    busy = [asyncio.create_task(work()), asyncio.create_task(archive())]
    for _ in range(5):
        verdict = await Lived(pool).verify()
        assert (verdict.findings.kept, [text for each in verdict.projections for text in each.sample]) == ([], [])
    stop.set()
    await asyncio.gather(*busy)
    assert verdict.events > 50


@pytest.mark.parametrize("is_trimmed", [False, True])
async def test_a_log_that_begins_late_leaves_its_jobs_unknown(pool: Pool, is_trimmed: bool) -> None:
    """Without an archive what was trimmed cannot be known: that is no finding, and nothing is claimed of those jobs."""
    first = await pool.job()
    await pool.job()
    await pool.cancel(first)
    if is_trimmed:
        second, _ = (await Lived(pool).entries())[1]
        await pool.store.client.xtrim(keys.log(POOL), minid=second, approximate=False)
        await pool.store.client.hset(keys.meta(POOL), "trimmed", second)

    verdict = await Lived(pool).verify()

    assert verdict.ok
    assert {each.name: each.unknown for each in verdict.projections if each.unknown} == (
        {"jobs": 1, "counters": 1} if is_trimmed else {}
    )
