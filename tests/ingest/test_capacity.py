"""What no known device could ever hold is refused at once; what nobody knows is accepted."""

import asyncio

import orjson
import pytest

from contracts.errors import StoreUnavailable
from contracts.store import keys
from services.ingest.admission.capacity import KNOWN_S, SOON_S, STALE_S, Capacity, Hashes
from services.ingest.edge.problems import Problem
from tests.ingest.api import Api, log_length
from tests.store.play import Play

GIB = 1 << 30


class Fleet:
    """Workers as the store tells of them, and a clock that stands still."""

    def __init__(self, **sizes: int) -> None:
        self.sizes, self.now_s, self.reads = sizes, 0.0, 0
        self.away: set[str] = set()
        self.has_read = asyncio.Event()
        self.capacity = Capacity(self.read, lambda: self.now_s)

    async def read(self, pool: str) -> Hashes:
        self.reads += 1
        if pool in self.away:
            raise StoreUnavailable("away")
        self.has_read.set()
        return {name: {"devices": orjson.dumps([{"bytesTotal": size}]).decode()} for name, size in self.sizes.items()}

    async def takes(self, job_bytes: int) -> bool:
        try:
            await self.capacity.check("default", job_bytes)
        except Problem as problem:
            return problem.code != "unschedulable"
        return True


async def test_the_largest_device_decides_to_the_byte() -> None:
    fleet = Fleet(a=4, b=9)
    await fleet.capacity.look("default")

    assert [await fleet.takes(size) for size in (0, 9, 10)] == [True, True, False]


async def test_what_fits_is_told_from_memory_and_what_does_not_is_asked_once_a_second() -> None:
    fleet = Fleet(a=4)
    await fleet.capacity.look("default")
    for _ in range(3):
        await fleet.takes(4)
        await fleet.takes(5)
    assert fleet.reads == 1

    fleet.sizes["b"], fleet.now_s = 5, SOON_S
    assert await fleet.takes(5)
    fleet.now_s += STALE_S
    await fleet.takes(5)
    assert fleet.reads == 2


async def test_a_device_stays_known_while_its_worker_restarts_and_not_for_ever() -> None:
    fleet = Fleet(small=4, large=9)
    await fleet.capacity.look("default")
    del fleet.sizes["large"]

    fleet.now_s = KNOWN_S - 1
    await fleet.capacity.look("default")
    assert await fleet.takes(9)
    fleet.now_s = KNOWN_S + STALE_S
    await fleet.capacity.look("default")
    assert not await fleet.takes(9)


@pytest.mark.parametrize("sizes", [{}, {"a": 0}])
async def test_without_a_known_size_everything_is_accepted(sizes: dict[str, int]) -> None:
    fleet = Fleet(**sizes)
    assert await fleet.takes(GIB)
    await fleet.capacity.look("default")
    assert await fleet.takes(GIB)


async def test_while_the_store_is_away_nothing_is_refused_for_its_size() -> None:
    fleet = Fleet(a=4)
    await fleet.capacity.look("default")
    fleet.away, fleet.now_s = {"default"}, SOON_S

    with pytest.raises(StoreUnavailable):
        await fleet.takes(GIB)


async def test_the_watch_learns_of_workers_and_survives_a_store_that_is_away() -> None:
    fleet, stop = Fleet(a=4), asyncio.Event()
    fleet.away = {"first"}
    watching = asyncio.create_task(fleet.capacity.watch(["first", "default"], stop))
    await fleet.has_read.wait()
    stop.set()
    await watching

    assert not await fleet.takes(5)


async def test_a_job_for_which_no_gpu_has_enough_memory_is_refused_at_post(api: Api, play: Play) -> None:
    """Field case 18: it neither blocks the line nor waits for ever without a word; what fits is not touched."""
    worker = keys.worker("default", play.worker)
    await api.store.client.hset(worker, "devices", orjson.dumps([{"bytesTotal": (1 << 20) - 1, "slots": []}]))
    await api.service.context.capacity.look("default")

    refused = await api.submit()  # the model asks for 1 MiB
    elsewhere = await api.submit(pool="large")  # where nobody knows

    assert (refused.status, refused.code, refused.pointers) == (422, "unschedulable", ["/model"])
    assert "needs 1 MiB" in refused.body["errors"][0]["message"]
    assert refused.body["retryable"] is False
    assert elsewhere.status == 201
    assert await log_length(api) == 1  # the worker's registration


async def test_a_refused_size_takes_no_key_and_no_submit(api: Api, play: Play) -> None:
    worker = keys.worker("default", play.worker)
    await api.store.client.hset(worker, "devices", orjson.dumps([{"bytesTotal": 1}]))
    await api.service.context.capacity.look("default")
    key = await api.tenant("t_fast", submitsPerMinute=1)

    refused = await api.submit(key, headers={"Idempotency-Key": "k"})

    assert refused.code == "unschedulable"
    assert (await api.get("/v1/limits", key=key)).body["submits"]["left"] == 2
    assert await api.store.client.keys("hr:{idem:*") == []
