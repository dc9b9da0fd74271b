"""The scheduler's snapshot is the fold of the log up to where it stands, or the place where it is not is named."""

from collections.abc import Callable

from contracts.archive import Archive
from contracts.audit import Verdict, verify
from contracts.store import Store, keys
from services.scheduler.audit import SnapshotAudit
from services.scheduler.fold.state import PoolState
from services.scheduler.snapshots import fold_and_keep
from tests.archivist.rig import POOL, Pool
from tests.audit.rig import Lived
from tests.audit.snapshots import put_snapshot, replace_snapshot
from tests.scheduler.rig import Worker, candidate, submit, until


async def audit(pool: Pool) -> Verdict:
    """As a new process."""
    archive = Archive(pool.store, pool.objects)
    return await verify(pool.store, archive, POOL, beside=[SnapshotAudit(pool.store, POOL)])


def said(verdict: Verdict) -> list[str]:
    return next(each.sample for each in verdict.projections if each.name == "scheduler")


async def test_a_snapshot_of_a_pool_that_works_is_the_fold_and_each_change_is_placed(store: Store, pool: Pool) -> None:
    """Shares, budgets, estimates, queues: whatever of it a foreign hand changes."""
    async with candidate(store.url) as leader, (await Worker(store).register()).beating() as worker:
        first, second = await submit(store), await submit(store, "t_b", user_digest="ab", priority="high")
        assert {await worker.run_next(), await worker.run_next()} == {first, second}
        waiting = [await submit(store, f"t_{letter}") for letter in "abc"]
        await until(lambda: waiting[-1] in leader.state.jobs)
        assert await fold_and_keep(store, POOL)
    clean = await audit(pool)
    kept = await store.snapshots.load(POOL)
    assert kept is not None
    await submit(store)  # the log goes on behind it

    changes: dict[str, Callable[[PoolState], object]] = {
        waiting[0]: lambda state: state.jobs.pop(waiting[0]),
        waiting[1]: lambda state: state.jobs[waiting[1]].__setattr__("order", 1),
        "admitted": lambda state: state.__setattr__("admitted", 99),
        "budgets": lambda state: state.budgets.used_ms.__setitem__("t_z", 7),
        worker.id: lambda state: state.workers[worker.id].__setattr__("draining", True),
    }
    for row, change in changes.items():
        await put_snapshot(store, kept[1])
        await replace_snapshot(store, change)
        found = await audit(pool)
        assert any(text.startswith(row) for text in said(found)), (row, said(found))
        assert not found.ok

    assert (said(clean), clean.ok) == ([], True)
    await put_snapshot(store, b"{}")
    assert (await audit(pool)).ok  # of another version: nobody reads it
    await put_snapshot(store, b"[")
    assert "cannot be read" in said(await audit(pool))[0]
    await store.client.hset(keys.snapshot(POOL), "digest", "0")
    assert "not what was kept" in said(await audit(pool))[0]


async def test_a_snapshot_ahead_of_its_log_is_told(lived: Lived) -> None:
    await replace_snapshot(lived.store, lambda state: None)
    await lived.client.hset(keys.snapshot(POOL), "position", "9999999999999-0")

    found = await audit(lived.pool)

    assert said(found) == ["snapshot: it stands at 9999999999999-0, which the log does not reach"]
