"""A log that is another one when a reader comes back: it is told, and what was made of the one before is made again."""

import asyncio

import pytest

from contracts import events as ev
from contracts.positions import entry_key
from contracts.store import Store, keys
from contracts.store.anchored import Forked
from contracts.store.log import Poison
from tests.store.play import POOL, Play

WAIT_S = 20


async def cut_readers(store: Store) -> None:
    for client in await store.client.client_list():
        if client["cmd"] in ("xread", "xinfo|stream"):
            await store.client.client_kill_filter(_id=client["id"])


async def lose_last(store: Store, pool: str) -> None:
    """What a store does that comes back without its last second."""
    ((last, _),) = await store.client.xrevrange(keys.log(pool), count=1)
    await store.client.xdel(keys.log(pool), last)


async def test_a_reader_that_comes_back_to_the_same_log_goes_on_and_to_another_one_is_told(store: Store) -> None:
    """why.md 18: also where the connection was lost between two reads, and no read failed."""
    play = await Play(store).open()
    reader = store.anchored(POOL, "0-0")
    await play.job()
    before = [entry.position for entry in await reader.read()]
    await cut_readers(store)
    await play.job()

    after = [entry.position for entry in await reader.read()]

    assert entry_key(after[0]) > entry_key(before[-1])
    await lose_last(store, POOL)
    await cut_readers(store)
    last = await play.job()
    with pytest.raises(Forked, match=after[-1]):
        await reader.read()
    assert last

    reader.begin(await store.end_of_log(POOL))
    again = await play.job()
    assert [entry.subject for entry in await reader.read() if not isinstance(entry, Poison)] == [again]


async def test_a_reader_behind_the_end_of_another_log_is_told(store: Store) -> None:
    """It read nothing yet, as one that begins at a snapshot: its place is ahead of all there is."""
    play = await Play(store).open()
    end_ms, _ = entry_key(await store.end_of_log(POOL))
    reader = store.anchored(POOL, f"{end_ms + 60_000}-0")
    assert await reader.read() == []
    await cut_readers(store)

    with pytest.raises(Forked):
        await reader.read()
    assert await play.job()


async def test_the_configuration_is_folded_again_when_its_log_lost_an_event(store: Store) -> None:
    """Field case 81: a revocation that the store lost must not make processes disagree for good."""
    directory, stop = store.directory, asyncio.Event()
    await directory.change(lambda _: ev.TenantCreated(tenant_id="t_a"), "t_a")
    key = ev.KeyCreated(tenant_id="t_a", key_id="k1", sha256="00", scopes=("jobs:read",))
    await directory.change(lambda _: key, "k1")
    following = asyncio.create_task(directory.follow(stop))
    await directory.change(lambda _: ev.KeyRevoked(tenant_id="t_a", key_id="k1"), "k1")
    assert directory.configuration.keys == {}

    await lose_last(store, keys.SYSTEM)
    await cut_readers(store)
    async with asyncio.timeout(WAIT_S):
        while not directory.configuration.keys:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    assert list(directory.configuration.tenants) == ["t_a"]
    stop.set()
    following.cancel()
