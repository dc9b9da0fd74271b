"""A snapshot of another version, or a broken one, stops nobody: the log has all that is in it."""

from dataclasses import fields
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import Corrupt
from contracts.store import Store, Word
from services.scheduler.fold.records import Job, Slot
from services.scheduler.fold.snapshot import dump, load
from services.scheduler.snapshots import load_state
from tests.scheduler.rig import POOL, Worker, candidate, submit, until
from tests.scheduler.world import World


def busy() -> World:
    """A world with a worker and a job on its deck."""
    world = World()
    world.worker("w1")
    world.submit()
    world.turn()
    return world


def damaged(data: bytes, change: dict[str, Any]) -> bytes:
    return orjson.dumps(orjson.loads(data) | change)


@pytest.mark.parametrize("record", [Job, Slot])
def test_a_snapshot_from_before_a_field_with_a_default_is_read(record: type) -> None:
    world = busy()
    key = "jobFields" if record is Job else "slotFields"
    raw = orjson.loads(dump(world.state))
    newest = fields(record)[-1].name
    at = raw[key].index(newest)
    raw[key].pop(at)
    rows = raw["jobs"] if record is Job else [slot for worker in raw["workers"] for slot in worker["slots"]]
    assert rows
    for row in rows:
        row.pop(at)

    assert dump(load(orjson.dumps(raw))) == dump(world.state)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1},
        {"version": 99},
        {"jobs": [["too", "short"]]},
        {"jobFields": ["id"]},
        {"jobFields": None},
        {"workers": [{}]},
        {"position": None, "policy": 5},
    ],
)
def test_whatever_is_wrong_with_a_snapshot_is_called_corrupt(change: dict[str, Any]) -> None:
    with pytest.raises(Corrupt):
        load(damaged(dump(busy().state), change))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_at_all_raise_anything_else(data: bytes) -> None:
    with pytest.raises(Corrupt):
        load(data)


async def test_a_scheduler_that_cannot_read_the_snapshot_folds_the_log_and_leads(store: Store, store_url: str) -> None:
    async with candidate(store_url) as leader, (await Worker(store).register()).beating() as worker:
        first, second = await submit(store), await submit(store)
        await worker.run_next()
        await until(lambda: second in leader.state.jobs)
        position, whole = leader.state.position, dump(leader.state)
    assert await store.snapshots.keep(POOL, "s1", position, damaged(whole, {"version": 1}))

    assert (await load_state(store, POOL)).jobs == {}
    async with candidate(store_url) as successor, worker.beating():
        assert await worker.run_next() == second
        third = await submit(store)
        assert await worker.complete(await worker.start(await worker.offer())) is Word.APPLIED
        await until(lambda: {first, second, third} <= set(successor.state.jobs))
