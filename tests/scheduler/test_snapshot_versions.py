"""A snapshot of another version, or a broken one, stops nobody: the log has all that is in it."""

from dataclasses import fields
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.errors import Corrupt
from contracts.job import JobStatus
from contracts.store import Store, Word
from services.scheduler.fold.columns import pack, unpack
from services.scheduler.fold.records import Job, Slot
from services.scheduler.fold.snapshot import READ, dump, load
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


def test_a_snapshot_from_before_a_field_with_a_default_is_read() -> None:
    world = busy()
    raw = orjson.loads(dump(world.state))
    del raw["jobs"]["columns"][fields(Job)[-1].name]
    at = raw["slotFields"].index(fields(Slot)[-1].name)
    raw["slotFields"].pop(at)
    for worker in raw["workers"]:
        for slot in worker["slots"]:
            slot.pop(at)

    assert dump(load(orjson.dumps(raw))) == dump(world.state)


WORDS = st.sampled_from(["", "a", "b", "c"])
WHOLE = st.builds(
    Job,
    id=st.text(max_size=3),
    tenant_id=WORDS,
    model=st.just("echo@1"),
    band=st.integers(0, 3),
    order=st.integers(0, 1 << 48),
    first=st.text(max_size=3),
    last=WORDS,
    max_attempts=st.just(3),
    timeout_ms=st.integers(0, 1),
    bytes=st.just(0),
    start_by_ms=st.none() | st.just(5),
    hooks=st.frozensets(WORDS),
    resources=st.lists(st.tuples(WORDS, st.integers(1, 2)), max_size=2).map(tuple),
    status=st.sampled_from(JobStatus),
    held=st.booleans(),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(WHOLE, max_size=20))
def test_columns_give_back_every_record_as_it_was(jobs: list[Job]) -> None:
    """Whatever the records have in common: everything, a few values, nothing."""
    raw = orjson.loads(orjson.dumps(pack(Job, jobs, leave_out=("offers",)), default=sorted))

    assert unpack(Job, len(jobs), raw, READ) == jobs


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1},
        {"version": 99},
        {"version": 5},
        {"jobs": [["too", "short"]]},
        {"jobs": {"count": 1, "columns": {"id": {"each": ["job_1", "job_2"]}}, "offers": {}}},
        {"jobs": {"count": 1, "columns": {"unheardOf": {"same": 1}}, "offers": {}}},
        {"jobs": {"count": 1, "columns": {"id": {"of": [], "at": [0]}}, "offers": {}}},
        {"jobs": {"count": 1, "columns": None, "offers": {}}},
        {"jobs": {"count": 0, "columns": {}, "offers": {"job_1": {}}}},
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
