"""What differs from the log is made anew from it, in one command; what the log cannot tell is left and named."""

import asyncio
import random
from typing import Any

import pytest

from contracts import events as ev
from contracts import ids
from contracts.archive import Archive
from contracts.audit import Beside, Repaired, Scope, repair
from contracts.audit.queues import QueueAudit
from contracts.audit.repair import CHAIN, LOG
from contracts.audit.verify import EVERYTHING
from contracts.deliveries import Ask, PlannedDelivery
from contracts.job import JobStatus
from contracts.store import Store, keys
from contracts.store.replies import Reply
from contracts.store.write import JobGuard, Write
from contracts.usage.audit import UsageAudit
from services.archivist.audit import RetentionAudit
from services.notifier.replanning import Replanner
from services.scheduler.audit import SnapshotAudit
from services.scheduler.fold.snapshot import load
from tests.archivist.rig import POOL, TENANT, Pool
from tests.audit import test_corruptions as plants
from tests.audit.rig import Lived
from tests.audit.snapshots import replace_snapshot
from tests.scheduler.rig import Log, Worker, candidate, eventually, submit, until

TOGETHER: list[plants.Plant] = [
    plants.a_field_of_a_job_is_changed, plants.the_status_of_a_job_is_changed,
    plants.the_count_of_open_jobs_is_changed, plants.the_bytes_of_a_tenant_are_changed,
    plants.an_ended_job_is_listed_as_open, plants.a_job_that_is_none_is_listed,
    plants.a_dead_letter_is_not_listed,
    plants.a_dedup_key_outlives_its_job, plants.a_dedup_key_is_held_by_nobody, plants.a_planned_delivery_is_lost,
    plants.a_delivery_forgets_an_attempt, plants.a_delivery_that_waits_is_in_no_queue,
    plants.an_ended_job_is_in_no_list_to_be_forgotten,
    plants.an_open_job_is_listed_to_be_forgotten, plants.an_ended_job_is_listed_under_both_kinds,
]  # fmt: skip


class Died(Exception):
    """The process that repairs is gone."""


async def mend(lived: Lived, scope: Scope = EVERYTHING) -> Repaired:
    """As a new process."""
    archive = Archive(lived.store, lived.pool.objects)
    replan = Replanner(lived.store, archive, POOL, "https://here.example")
    beside: list[Beside] = [
        SnapshotAudit(lived.store, POOL), UsageAudit(lived.store, POOL), RetentionAudit(lived.store, POOL),
        QueueAudit(lived.store, POOL),
    ]  # fmt: skip
    return await repair(lived.store, archive, POOL, scope, beside, replan, "a test", "key_op")


async def rebuilt(lived: Lived) -> list[ev.ProjectionRebuilt]:
    found = [fields for _, fields in await lived.entries() if fields.get(b"t") == b"projection.rebuilt"]
    return [ev.ProjectionRebuilt.model_validate_json(fields[b"d"]) for fields in found]


async def test_whatever_differs_is_made_anew_once_and_said(lived: Lived) -> None:
    """Field case 79: a rebuild is idempotent, sends nothing that was sent and starts nothing."""
    rows = {row for plant in TOGETHER for _, row in [await plant(lived)]}
    lost, wrong = lived.open[1], lived.open[2]
    await lived.client.delete(keys.job(POOL, lost))
    await lived.client.set(keys.job(POOL, wrong), "text")
    await lived.client.zrem(keys.jobs(POOL, TENANT), lived.open[3])
    await lived.client.hset(keys.usage(POOL), "bytes", "text")

    first = await mend(lived)
    told = await rebuilt(lived)
    again = await mend(lived)

    assert not first.before.ok
    assert (first.after.ok, first.done.left) == (True, []), first.after.projections
    named = {row for each in told for row in each.row.split(", ")}
    assert rows - {TENANT} | {lost, wrong, lived.open[3]} <= named
    assert {(each.reason, each.by) for each in told} == {("a test", "key_op")}
    assert (again.done.rebuilt.total(), len(await rebuilt(lived))) == (0, len(told))
    assert (await lived.verify()).ok


async def test_what_tenants_used_is_counted_anew(lived: Lived) -> None:
    """A row that is changed, one that is lost, and one of a tenant that never was."""
    (key,) = await lived.client.keys(keys.used_on(POOL, "*"))
    (field, *_) = await lived.client.hkeys(key)
    assert isinstance(field, bytes)
    was = await lived.client.hgetall(key)
    sound = await mend(lived)
    await lived.client.hset(key, mapping={field: "echo@1 9 9", b"t_z": "echo@1 1 1"})

    found = await mend(lived)
    rows = next(each for each in found.before.projections if each.name == "used")

    assert (sound.before.ok, rows.differing >= 2, found.after.ok) == (True, True, True)
    assert any(field.decode() in text for text in rows.sample)
    assert await lived.client.hgetall(key) == was


async def test_a_body_is_put_back_as_the_archive_kept_it_or_named_with_the_way_out(lived: Lived) -> None:
    """Nothing is put back that was not admitted, nor of a job that was erased meanwhile."""
    lost, edited, newest, altered = [await lived.submitted() for _ in range(4)]
    erased, never = await lived.submitted(), await lived.submitted()
    ended = (lost, edited, altered, erased)
    kept = {job_id: await lived.client.get(keys.body(POOL, job_id)) for job_id in ended}
    await lived.client.setrange(keys.body(POOL, altered), 12, "Z")  # before it was archived
    for job_id in ended:
        await lived.pool.cancel(job_id)
    await lived.seal()
    for job_id in (lost, newest, altered, never):
        await lived.client.delete(keys.body(POOL, job_id))
    await lived.client.set(keys.body(POOL, edited), "another")
    await lived.client.delete(keys.body(POOL, erased))
    await lived.pool.cancel(newest)
    call = lived.store.repairs.body

    async def late(pool: str, job_id: str, *args: Any) -> Reply:
        if job_id == erased:
            await lived.client.hset(keys.job(POOL, erased), "er", "1")
        return await call(pool, job_id, *args)

    lived.store.repairs.body = late  # type: ignore[method-assign, assignment]
    found = await mend(lived)

    ways_out = dict(found.done.left)
    bodies = {job_id: await lived.client.get(keys.body(POOL, job_id)) for job_id in ended}
    assert bodies == {lost: kept[lost], edited: kept[edited], altered: None, erased: None}
    assert found.done.rebuilt["bodies"] == 2
    assert {each.row for each in await rebuilt(lived) if each.projection == "bodies"} == {lost, edited}
    assert "is not what was admitted" in ways_out[altered]
    assert "the archive does not have it" in ways_out[newest]
    assert f"headrace jobs cancel {never}" in ways_out[never]
    assert not {lost, edited} & ways_out.keys()


async def test_of_a_delivery_nothing_is_made_up(lived: Lived) -> None:
    """One that is lost after an attempt may have arrived, one that knows of more than the log may have been sent."""
    _, gone = await plants.a_delivery_that_is_to_be_tried_again_is_gone(lived)
    _, ahead = await plants.a_delivery_knows_of_an_attempt_too_many(lived)

    found = await mend(lived)

    assert dict(found.done.left).keys() == {gone, ahead}
    assert all("backfill" in what for _, what in found.done.left)
    assert await lived.client.hget(keys.delivery(POOL, ahead), "try") == b"3"


@pytest.mark.parametrize(
    "plant", [plants.a_delivery_that_waits_is_in_no_queue, plants.an_endpoint_with_deliveries_is_in_no_line]
)
async def test_a_delivery_that_was_in_no_queue_is_sent(lived: Lived, plant: plants.Plant) -> None:
    _, delivery = await plant(lived)
    name = ids.endpoint_of(delivery)

    found = await mend(lived)

    after = await lived.store.deliveries.due_endpoints(POOL, 10)
    _, claimed = await lived.store.deliveries.claim(POOL, [Ask(name, 5, 5)], 1_000)
    assert name in [each for each, _ in after.endpoints]
    assert ([each.id for each in claimed], found.done.left) == ([delivery], [])


@pytest.mark.parametrize("lost", ["chain", "first"])
async def test_deliveries_in_strict_order_go_on(lived: Lived, lost: str) -> None:
    """The order of a job that is lost is made again; the first of it is due, and the next one after it."""
    job_id, name = lived.open[0], "anon000000000009"
    names = [ids.delivery_id(job_id, number, name, 0) for number in (1, 2)]
    planned = [
        PlannedDelivery(names[number - 1], {"body": "{}"}, name, TENANT, job_id, number, strict=True)
        for number in (1, 2)
    ]
    await lived.store.deliveries.plan(POOL, "", planned, [])
    if lost == "chain":
        await lived.client.delete(keys.chain(POOL, name, job_id))
    else:
        await lived.client.zrem(keys.chain(POOL, name, job_id), names[0])
        await lived.client.delete(keys.delivery(POOL, names[0]))
    before = await lived.verify()

    found = await mend(lived)

    assert (before.ok, found.after.ok) == (False, True)
    _, claimed = await lived.store.deliveries.claim(POOL, [Ask(name, 5, 5)], 1_000)
    first = names[0] if lost == "chain" else names[1]
    assert first in [each.id for each in claimed]


async def test_one_job_alone_is_repaired(lived: Lived) -> None:
    for job_id in lived.open[:2]:
        await lived.client.hset(keys.job(POOL, job_id), "pr", "high")

    found = await mend(lived, Scope(job_id=lived.open[0]))

    assert found.after.ok
    assert [each.row for each in await rebuilt(lived)] == [lived.open[0]]
    assert not (await lived.verify()).ok


@pytest.mark.parametrize(
    ("plant", "why"),
    [(plants.an_entry_of_a_segment_is_edited, CHAIN), (plants.an_entry_cannot_be_read, LOG)],
    ids=["chain", "log"],
)
async def test_nothing_is_made_of_a_log_that_is_itself_not_what_it_was(
    lived: Lived, plant: plants.Plant, why: str
) -> None:
    await plant(lived)
    await lived.client.hset(keys.job(POOL, lived.open[0]), "pr", "high")

    found = await mend(lived)

    assert (found.done.refused, found.done.rebuilt.total(), found.after.ok) == (why, 0, False)
    assert await lived.client.hget(keys.job(POOL, lived.open[0]), "pr") == b"high"
    assert await rebuilt(lived) == []


async def test_a_job_of_which_the_log_has_lost_an_event_is_left_and_the_others_are_not(lived: Lived) -> None:
    """Never back to an older state: what the store knows and the log lacks is not thrown away."""
    _, ended = await plants.the_newest_event_of_a_job_is_removed(lived)
    _, stranger = await plants.a_job_is_there_of_which_the_log_knows_nothing(lived)
    await plants.a_fence_is_wrong(lived)
    broken, sound = lived.open[:2]
    await lived.client.hset(keys.job(POOL, sound), "pr", "high")
    kept = {job_id: await lived.client.hgetall(keys.job(POOL, job_id)) for job_id in (ended, stranger, broken)}

    found = await mend(lived)

    ways_out = dict(found.done.left)
    assert ways_out.keys() == {ended, stranger, broken}
    assert (await rebuilt(lived))[0].row == sound
    assert kept == {job_id: await lived.client.hgetall(keys.job(POOL, job_id)) for job_id in kept}
    assert "the log lost it" in ways_out[ended]
    assert "headrace jobs cancel" in ways_out[broken]


@pytest.mark.parametrize("moved", ["job", "epoch"])
async def test_who_writes_between_the_look_and_the_repair_is_right(lived: Lived, moved: str) -> None:
    job_id = lived.open[0]
    await lived.client.hset(keys.job(POOL, job_id), "pr", "high")
    call = lived.store.repairs.job

    async def late(*args: Any, **kwargs: Any) -> Reply:
        if moved == "epoch":
            await lived.client.hincrby(keys.meta(POOL), "epoch", 1)
        else:
            await lived.pool.cancel(job_id)
        return await call(*args, **kwargs)

    lived.store.repairs.job = late  # type: ignore[method-assign]
    found = await mend(lived)
    lived.store.repairs.job = call  # type: ignore[method-assign]

    assert [row for row, _ in found.done.left] == [job_id]
    assert await lived.client.hget(keys.job(POOL, job_id), "pr") == b"high"
    if moved == "job":
        assert await lived.client.hget(keys.job(POOL, job_id), "s") == JobStatus.CANCELLED.encode()
        assert (await mend(lived)).after.ok


async def test_a_key_that_is_taken_between_the_look_and_the_repair_stays_with_who_took_it(lived: Lived) -> None:
    await plants.a_dedup_key_is_held_by_nobody(lived)
    held, call = keys.dedup_in_flight(POOL, TENANT), lived.store.repairs.dedup_key
    taken: list[bytes] = []

    async def late(*args: Any, **kwargs: Any) -> Reply:
        await lived.client.hdel(held, "cd" * 16)
        taken.append((await lived.submitted(dedup="cd" * 16)).encode())
        return await call(*args, **kwargs)

    lived.store.repairs.dedup_key = late  # type: ignore[method-assign]
    found = await mend(lived)

    assert [row for row, _ in found.done.left] == ["job_x"]
    assert [await lived.client.hget(held, "cd" * 16)] == taken
    assert found.after.ok


async def test_a_repair_that_is_killed_anywhere_is_finished_by_the_next(lived: Lived) -> None:
    call = lived.store.repairs.job
    for job_id in lived.open[:4]:
        await lived.client.delete(keys.job(POOL, job_id))
    for before in (False, True, False):
        calls = 0

        async def dies(*args: Any, before: bool = before, **kwargs: Any) -> Reply:
            nonlocal calls
            calls += 1
            if before and calls == 2:
                raise Died
            reply = await call(*args, **kwargs)
            if not before:
                raise Died
            return reply

        lived.store.repairs.job = dies  # type: ignore[method-assign]
        with pytest.raises(Died):
            await mend(lived)
    lived.store.repairs.job = call  # type: ignore[method-assign]

    assert (await mend(lived)).after.ok
    rows = [each.row for each in await rebuilt(lived)]
    assert sorted(rows) == sorted(lived.open[:4])


async def test_two_repairs_at_once_do_everything_once(lived: Lived) -> None:
    """Both saw the same, so both would add the same to a counter."""
    for job_id in lived.open[:3]:
        await lived.client.hset(keys.job(POOL, job_id), "pr", "high")
    await plants.a_dedup_key_is_held_by_nobody(lived)
    await lived.client.hincrby(keys.usage(POOL), "bytes", -7)

    found = await asyncio.gather(*(mend(lived) for _ in range(3)))
    last = await mend(lived)

    assert last.after.ok
    rows = [each.row for each in await rebuilt(lived)]
    assert sorted(rows) == sorted([*lived.open[:3], "job_x", "bytes"]), found


async def test_jobs_come_and_go_while_it_repairs(pool: Pool) -> None:
    lived, stop, chance = Lived(pool), asyncio.Event(), random.Random(7)
    broken = [await pool.job() for _ in range(20)]

    async def work() -> None:
        waiting: list[str] = []
        while not stop.is_set():
            waiting += [await pool.job() for _ in range(2)]
            await pool.cancel(waiting.pop(chance.randrange(len(waiting))))

    busy = asyncio.create_task(work())
    for job_id in broken:
        await pool.store.client.hset(keys.job(POOL, job_id), "pr", "high")
    await pool.store.client.hincrby(keys.usage(POOL), "bytes", 5)
    found = await mend(lived)
    stop.set()
    await busy

    assert (found.after.ok, (await lived.verify()).ok) == (True, True)
    assert {each.row for each in await rebuilt(lived)} == {*broken, "bytes"}


async def test_a_job_that_was_set_aside_is_served_again(store: Store, store_url: str, pool: Pool) -> None:
    """Readiness looks at what the leader says it has set aside."""
    log, lived = Log(store), Lived(pool)
    lost, changed = await submit(store), await submit(store)
    await store.client.delete(keys.job(POOL, lost))
    await store.client.hset(keys.job(POOL, changed), "s", "cancelled")
    async with candidate(store_url), (await Worker(store).register()).beating() as worker:
        await log.wait_for("scheduler.mismatch", count=2)
        await eventually(lambda: aside(store), lambda count: count == b"2")

        before = await lived.verify()
        found = await mend(lived)

        assert (before.ok, found.after.ok, found.done.left) == (False, True, [])
        assert {await worker.run_next(), await worker.run_next()} == {lost, changed}
        await eventually(lambda: aside(store), lambda count: count == b"0")


async def test_a_job_that_was_set_aside_for_a_damaged_entry_is_named_with_the_way_out(
    store: Store, store_url: str, pool: Pool
) -> None:
    """Its end cannot be read: the log's folds think that it waits, the store that it was cancelled."""
    log, lived, job_id = Log(store), Lived(pool), await submit(store)
    hash_key = keys.job(POOL, job_id)
    entry = {
        "t": "job.cancelled",
        "j": job_id,
        "n": 2,
        "f": 0,
        "p": await store.client.hget(hash_key, "p"),
        "d": "{not",
    }
    position: Any = await store.client.xadd(keys.log(POOL), entry)  # type: ignore[arg-type]
    await store.client.hset(hash_key, mapping={"s": "cancelled", "n": 2, "p": position})
    async with candidate(store_url), (await Worker(store).register()).beating() as worker:
        await log.wait_for("scheduler.mismatch")

        found = await mend(lived)
        again = Write(
            job_id, (ev.JobRetried(by="key/op", from_status="cancelled", run=2, max_attempts=3),),
            guard=JobGuard(sequence=2), opens_for="t_a",
        )  # fmt: skip
        assert (await store.jobs.append(POOL, again, "again")).applied

        assert "headrace jobs retry" in dict(found.done.left)[job_id]
        assert await worker.run_next() == job_id
        await eventually(lambda: aside(store), lambda count: count == b"0")


async def test_a_snapshot_that_is_wrong_is_made_anew_and_its_leader_begins_again(store: Store, pool: Pool) -> None:
    """A leader that began with it would go on with what is not so, and keep it again."""
    lived, job_id = Lived(pool), await submit(store)
    await replace_snapshot(store, lambda state: state.jobs[job_id].__setattr__("band", 0))

    async with candidate(store.url) as leader:
        await until(lambda: job_id in leader.state.jobs)
        found = await mend(lived)
        await until(leader._over.is_set)

    kept = await store.snapshots.load(POOL)
    assert kept is not None
    assert load(kept[1]).jobs[job_id].band == 2
    assert (found.before.ok, found.after.ok) == (False, True), found.after.projections
    async with candidate(store.url) as leader:  # it read the same event, and began behind it
        await until(lambda: leader.is_leading)
        await submit(store)
        await until(lambda: leader.state.admitted == 2)
        assert leader.state.jobs[job_id].band == 2
        assert not leader._over.is_set()


async def aside(store: Store) -> Any:
    return await store.client.hget(keys.leader(POOL), "aside")
