"""Memory stays bounded: what has ended goes by itself, all of it, and nobody waits for its going."""

from dataclasses import replace

from contracts import events as ev
from contracts import ids
from contracts.positions import entry_key
from contracts.retention import Kept
from contracts.store import Store, Word, keys
from contracts.store.archive import Standing
from contracts.store.jobs import Limits
from contracts.store.write import JobGuard, Write
from services.archivist.config import Pace
from services.archivist.forgetting import LOOK_AGAIN_MS, forgettable, postponed
from tests.archivist.rig import AT_ONCE, POOL, TENANT, Pool
from tests.scheduler.rig import eventually
from tests.servers import slow_each_time

SECONDS = replace(AT_ONCE, pace=Pace(0, 1_000, 0), known_for_s=1)


async def sweep(pool: Pool) -> None:
    """All that a running stack does beside the jobs: fold, plan, seal, trim, forget."""
    for _ in range(3):  # what is written while forgetting is sealed the next time
        await pool.snapshot_here()
        await pool.plan(10_000)
        await pool.archivist(config=SECONDS).run_once()
        await pool.store.client.hset(keys.archive(POOL), "until", 0)


async def used(store: Store) -> int:
    """Bytes of all keys of the pool."""
    names = [name async for name in store.client.scan_iter(f"hr:{{{POOL}}}:*", count=1_000)]
    sizes = [await store.client.memory_usage(name, samples=0) for name in names]
    return sum(size or 0 for size in sizes)


async def test_memory_levels_off_when_jobs_end_as_fast_as_they_come(pool: Pool) -> None:
    """Field cases 84 and 85: nothing of finished jobs stays: no hash, no body of 20 kB, no entry, no other key."""
    sizes, counts = list[int](), list[int]()
    for _ in range(4):
        for _ in range(100):
            await pool.cancel(await pool.job(b'{"prompt":"%s"}' % (b"x" * 20_000)))
        await sweep(pool)
        counts.append(await eventually(pool.store.client.dbsize, lambda count: count < 30))
        sizes.append(await used(pool.store))

    waiting = [await pool.job(b"x" * 20_000) for _ in range(10)]
    share = await used(pool.store) - sizes[-1]
    assert sizes[3] < 1.1 * max(sizes[:2]) + 20_000
    assert sizes[3] < 3 * share + 200_000
    assert counts[3] <= counts[0] + 2
    assert await pool.store.jobs.page(POOL, TENANT) == waiting[::-1]
    assert await pool.store.client.xlen(keys.log(POOL)) < 450  # whole nodes of 100


async def test_the_notifier_pins_what_it_has_not_planned(pool: Pool) -> None:
    """why.md 6: its hash and its body stay until the deliveries of a job are planned, however long that takes."""
    job_id = await pool.job()
    await pool.cancel(job_id)
    await pool.snapshot_here()
    for _ in range(3):
        await pool.archivist(config=SECONDS).run_once()
        await pool.store.client.hset(keys.archive(POOL), "until", 0)

    assert await pool.store.client.exists(keys.job(POOL, job_id), keys.body(POOL, job_id)) == 2
    await sweep(pool)
    assert await pool.store.client.exists(keys.job(POOL, job_id), keys.body(POOL, job_id)) == 0
    assert await pool.archive.body(POOL, job_id) == b"{}"


async def test_a_job_stays_until_its_last_event_is_archived(pool: Pool) -> None:
    """Also when something was written of it after its end was: a late write that was refused, a new run."""
    job_id, other = await pool.job(), await pool.job()
    await pool.cancel(job_id)
    await pool.cancel(other)
    await pool.snapshot_here()
    await pool.plan()
    keeps = pool.archivist(config=replace(SECONDS, kept=Kept(0, 10**6)))
    await keeps.run_once()
    late = Write(job_id, (ev.JobEventRejected(offending_type="job.progress", why="fenced"),), guard=JobGuard())
    assert (await pool.store.jobs.append(POOL, late, "late")).applied
    again = ev.JobRetried(by="t", from_status="cancelled", run=2, max_attempts=3)
    opened = Write(other, (again,), guard=JobGuard(), opens_for=TENANT)
    assert (await pool.store.jobs.append(POOL, opened, "again")).applied

    standings = await pool.store.archive.standings(POOL, [job_id, other])
    writes = forgettable([job_id, other], {job_id: standings[job_id]}, 60)
    token = await pool.store.client.hget(keys.archive(POOL), "token")
    count = await pool.store.archive.forget(POOL, token.decode(), "failed", "9999999999999-0", writes)

    assert count == 0
    assert await pool.store.client.exists(keys.job(POOL, job_id), keys.job(POOL, other)) == 2
    await pool.store.client.hset(keys.archive(POOL), "until", 0)
    await sweep(pool)
    assert await pool.store.client.exists(keys.job(POOL, job_id)) == 0
    assert await pool.store.client.exists(keys.job(POOL, other)) == 1
    assert await pool.store.client.zcard(keys.ended(POOL, "failed")) == 0


async def test_an_entry_that_is_gone_while_it_is_pending_holds_up_nothing(pool: Pool) -> None:
    """Field case 86: a pending entry without a body is acknowledged away, and the log is trimmed past it."""
    await pool.cancel(await pool.job())
    (lost,) = [message.position for message in await pool.group("dead").read(1, None)]
    await pool.store.client.xdel(keys.log(POOL), lost)
    await sweep(pool)
    pinned = await pool.store.client.hget(keys.meta(POOL), "trimmed")

    _, messages = await pool.group("alive").take_over(0)
    poison = [message.entry() for message in messages]
    await pool.store.deliveries.plan(POOL, keys.GROUP_NOTIFIER, [], [], poison)
    await sweep(pool)

    trimmed = await pool.store.client.hget(keys.meta(POOL), "trimmed")
    assert [(entry.position, entry.deleted) for entry in poison] == [(lost, True)]
    assert pinned is None or entry_key(pinned.decode()) <= entry_key(lost)
    assert entry_key(trimmed.decode()) > entry_key(lost)
    assert await pool.store.client.xlen(keys.poison(POOL)) == 1


async def test_the_sweep_of_many_holds_up_no_command(pool: Pool) -> None:
    """Field case 87: no command of sealing, trimming and forgetting takes 50 ms, and no script is cached."""
    client = pool.store.client

    async def many() -> None:
        for _ in range(1_000):
            await pool.cancel(await pool.job())
        await sweep(pool)
        assert await client.zcard(keys.ended(POOL, "failed")) == 0

    assert await slow_each_time(client, many) == set()
    assert (await client.info("memory"))["number_of_cached_scripts"] == 0


async def test_jobs_of_a_far_future_vanish_when_they_are_cancelled(pool: Pool) -> None:
    """Field case 88: ten years ahead, cancelled, gone; keys are as before. (The door refuses more than its limit.)"""
    await pool.cancel(await pool.job())
    await sweep(pool)
    before = await pool.store.client.dbsize()
    jobs = []
    for number in range(200):
        job_id = ids.mint_job_id(1_764_457_300_000, number, "aa")
        events = (
            ev.JobCreated(tenant_id=TENANT, model="echo@1", timeout_ms=1, body_bytes=2),
            ev.JobScheduled(run_at_ms=2_100_000_000_000),
        )
        reply = await pool.store.jobs.admit(POOL, Write(job_id, events), b"{}", TENANT, Limits())
        assert reply.word is Word.APPLIED
        jobs.append(job_id)
    for job_id in jobs:
        await pool.cancel(job_id)

    await sweep(pool)

    await eventually(pool.store.client.dbsize, lambda count: count <= before)
    assert await pool.store.client.pubsub_channels() == []


async def test_what_is_kept_follows_the_configuration_without_a_restart(pool: Pool) -> None:
    """A tenant's own time comes before its pool's, and holds up nobody else; archived events stay while they should."""
    directory = pool.store.directory
    await directory.open()

    async def say(**scope: str) -> None:
        facts = ev.RetentionFacts(failed_s=3_600) if "tenant_id" in scope else ev.RetentionFacts(live_s=3_600)
        await directory.change(lambda _: ev.RetentionChanged(retention=facts, **scope), "test")

    await say(tenant_id="t_long")
    await say(pool=POOL)
    kept = [await job_of(pool, "t_long", number) for number in range(3)]
    gone = [await job_of(pool, TENANT, number) for number in range(3, 5)]
    await sweep(pool)

    exist = pool.store.client.exists
    assert await exist(*(keys.job(POOL, job_id) for job_id in kept)) == 3
    assert await exist(*(keys.job(POOL, job_id) for job_id in gone)) == 0
    first = (await pool.everything())[0]
    trimmed = await pool.store.client.hget(keys.meta(POOL), "trimmed")
    assert entry_key(trimmed.decode()) < entry_key(first)  # all that is archived is in the store, too
    standing = (await pool.store.archive.standings(POOL, kept))[kept[0]]
    listed = await pool.store.client.zscore(keys.ended(POOL, "failed"), kept[0])
    assert listed == standing.done_ms + 3_600_000  # not met again before it is due, however many others there are

    await directory.change(lambda _: ev.RetentionChanged(tenant_id="t_long", retention=ev.RetentionFacts()), "test")
    await directory.change(lambda _: ev.RetentionChanged(pool=POOL, retention=ev.RetentionFacts()), "test")
    await pool.store.archive.postpone(POOL, "failed", dict.fromkeys(kept, 1))  # an hour later
    await sweep(pool)
    assert await exist(*(keys.job(POOL, job_id) for job_id in kept)) == 0
    trimmed = await pool.store.client.hget(keys.meta(POOL), "trimmed")
    assert entry_key(trimmed.decode()) > entry_key(first)


def test_a_job_that_is_kept_for_longer_is_looked_at_again_within_an_hour() -> None:
    """So that a time that is shortened meanwhile holds by then; what is due is not put off."""
    standings = {"old": Standing("failed", "t_a", 1, 1_000), "new": Standing("failed", "t_a", 1, 9_000_000)}
    later = postponed(standings, lambda _: 7_200_000, 60_000, 10_000_000)
    assert later == {"new": 10_000_000 + LOOK_AGAIN_MS - 60_000}


async def job_of(pool: Pool, tenant: str, number: int) -> str:
    job_id = ids.mint_job_id(1_764_457_400_000, number, "aa")
    event = ev.JobCreated(tenant_id=tenant, model="echo@1", timeout_ms=1, body_bytes=2)
    admitted = await pool.store.jobs.admit(POOL, Write(job_id, (event,)), b"{}", tenant, Limits())
    assert admitted.word is Word.APPLIED
    write = Write(job_id, (ev.JobCancelled(how="queued"),), guard=JobGuard(), closes_for=tenant)
    assert (await pool.store.jobs.append(POOL, write, f"c{job_id}")).applied
    return job_id
