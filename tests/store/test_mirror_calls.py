"""What keeps a log for its mirror, and what lets it go when notifiers read the topic instead."""

import random

import pytest

from contracts.errors import ConfigError
from contracts.positions import entry_key
from contracts.store import Store, keys
from contracts.store.log import Poison
from contracts.store.mirror import Hold, Moved
from contracts.store.write import KeyRing
from tests.notifier.hooked import POOL, admit, make_tenant


async def group(store: Store, name: str) -> dict:
    groups = await store.client.xinfo_groups(keys.log(POOL))
    return next((one for one in groups if one["name"] == name.encode()), {})


async def at(store: Store, name: str) -> str:
    return (await group(store, name))["last-delivered-id"].decode()


async def positions(store: Store) -> list[str]:
    return [position.decode() for position, _ in await store.client.xrange(keys.log(POOL))]


async def write(store: Store, count: int) -> list[str]:
    await make_tenant(store)
    for _ in range(count):
        await admit(store, None)
    return await positions(store)


@pytest.fixture
async def store(any_server) -> Store:
    """Every server that is supported: what it says of its groups is what is built on."""
    opened = Store(any_server.url)
    await opened.directory.open()
    await opened.directory.pool(POOL)
    await opened.open_pool(POOL)
    yield opened
    await opened.aclose()


async def test_one_process_holds_a_pool_and_only_it_moves_the_cursor(store: Store) -> None:
    one, two, three = await write(store, 3)
    assert await store.mirror.lead(POOL, "a", 60_000, "t") == Hold("0-0", 1)
    assert await store.mirror.lead(POOL, "b", 60_000, "t") is None
    assert not await store.mirror.move(POOL, "b", "0-0", Moved(one, 1, 1, {0: one}))
    move = Moved(two, 2, 2, {0: one, 1: two}, [Poison(one, "why")])
    assert await store.mirror.move(POOL, "a", "0-0", move)
    assert await store.mirror.move(POOL, "a", "0-0", move)  # its answer was lost: it is the same move
    assert not await store.mirror.move(POOL, "a", one, Moved(three, 1, 1, {}))
    told = await store.client.hgetall(keys.mirror(POOL))
    assert (told[b"count"], told[b"aside"], await store.client.xlen(keys.poison(POOL))) == (b"2", b"1", 1)
    stands = await group(store, keys.GROUP_MIRROR)
    assert (stands["last-delivered-id"].decode(), stands["lag"]) == (two, 1)
    assert (await store.mirror.resign(POOL, "a")).applied
    assert await store.mirror.lead(POOL, "b", 60_000, "t") == Hold(two, 1)
    with pytest.raises(ConfigError, match="topic t"):
        await store.mirror.lead(POOL, "b", 60_000, "another")


async def test_a_lost_group_stands_where_it_stood_and_lag_is_right_or_unknown(store: Store) -> None:
    """Field case 136: an unknown lag is never told as a number."""
    listed = await write(store, 6)
    await store.mirror.lead(POOL, "a", 60_000, "t")
    await store.mirror.move(POOL, "a", "0-0", Moved(listed[1], 2, 2, {}))
    await store.client.xgroup_destroy(keys.log(POOL), keys.GROUP_MIRROR)
    await store.mirror.lead(POOL, "a", 60_000, "t")
    assert (await at(store, keys.GROUP_MIRROR), (await group(store, keys.GROUP_MIRROR))["lag"]) == (listed[1], 4)
    await store.client.xtrim(keys.log(POOL), minid=listed[3], approximate=False)
    await store.mirror.move(POOL, "a", listed[1], Moved(listed[4], 3, 3, {}))
    assert (await group(store, keys.GROUP_MIRROR))["lag"] == 1


async def test_a_cursor_beyond_the_end_of_a_log_that_lost_its_tail_goes_back(store: Store) -> None:
    end = (await write(store, 2))[-1]
    await store.client.hset(keys.meta(POOL), "cursor:mirror", "9999999999999-0")
    assert await store.mirror.lead(POOL, "a", 60_000, "t") == Hold(end, 1)


async def test_without_an_archive_the_leader_trims_nothing_that_is_not_mirrored(store: Store) -> None:
    listed = await write(store, 5)
    await store.mirror.lead(POOL, "a", 60_000, "t")
    await store.mirror.move(POOL, "a", "0-0", Moved(listed[1], 2, 2, {}))
    await store.leadership.lead(POOL, "leader", 60_000)
    ring = KeyRing(POOL, [keys.leader(POOL), keys.log(POOL), keys.usage(POOL), keys.meta(POOL), keys.archive(POOL)])
    for number, expected in ((1, listed[1]), (2, listed[3])):
        args = [0, "leader", number, 60_000, listed[-1], 5, listed[3], "[]", 0]
        await store.batcher.call("turn", ring.keys, args)
        assert (await store.client.hget(keys.meta(POOL), "trimmed")).decode() == expected
        await store.client.xgroup_destroy(keys.log(POOL), keys.GROUP_MIRROR)


@pytest.mark.parametrize("seed", range(4))
async def test_the_notifiers_group_follows_what_is_planned_of_every_partition(store: Store, seed: int) -> None:
    """Mirror and notifiers move at random: nothing is let go that is not planned, and in the end everything is."""
    chance = random.Random(seed)
    listed = await write(store, 24)
    home = {position: chance.randrange(3) for position in listed}
    await store.mirror.lead(POOL, "a", 60_000, "t")
    sent, planned, cursor = list[str](), dict[int, str](), "0-0"
    while len(sent) < len(listed) or any(planned.get(home[each], "0-0") < each for each in sent):
        if chance.random() < 0.5 and len(sent) < len(listed):
            batch = listed[len(sent) : len(sent) + chance.randint(1, 6)]
            last = {home[position]: position for position in batch}
            assert await store.mirror.move(POOL, "a", cursor, Moved(batch[-1], len(batch), len(batch), last))
            sent, cursor = sent + batch, batch[-1]
        elif waiting := [each for each in sent if entry_key(planned.get(home[each], "0-0")) < entry_key(each)]:
            upto = waiting[0] if chance.random() < 0.7 else chance.choice(waiting)
            planned[home[upto]] = upto
            stands = await store.mirror.planned(POOL, "t", {home[upto]: upto})
            stood = await group(store, keys.GROUP_NOTIFIER)
            assert stands == stood["last-delivered-id"].decode()
            assert stood["lag"] in (None, sum(entry_key(each) > entry_key(stands) for each in listed))
            let_go = [each for each in listed if entry_key(each) <= entry_key(stands)]
            assert all(entry_key(planned.get(home[each], "0-0")) >= entry_key(each) for each in let_go)
    assert await at(store, keys.GROUP_NOTIFIER) == listed[-1]
    assert await store.needed_by(POOL, keys.GROUP_NOTIFIER) > listed[-1]


async def test_what_a_consumer_held_when_it_read_the_log_itself_is_done_with(store: Store) -> None:
    listed = await write(store, 4)
    await store.group(POOL, keys.GROUP_NOTIFIER, "old").read(2, None)
    await store.mirror.lead(POOL, "a", 60_000, "t")
    await store.mirror.move(POOL, "a", "0-0", Moved(listed[3], 4, 4, {0: listed[3]}))
    assert await store.mirror.planned(POOL, "another topic", {0: listed[3]}) is None
    assert (await group(store, keys.GROUP_NOTIFIER))["pending"] == 2
    assert await store.mirror.planned(POOL, "t", {0: listed[2]}) == listed[2]
    assert (await group(store, keys.GROUP_NOTIFIER))["pending"] == 0
    assert await store.mirror.planned(POOL, "t", {0: listed[0]}) == listed[2]
    await store.client.delete(keys.mirror(POOL))  # dropped, and begun anew: the group never goes back
    await store.client.hdel(keys.meta(POOL), "cursor:mirror")
    await store.mirror.lead(POOL, "a", 60_000, "t")
    await store.mirror.move(POOL, "a", "0-0", Moved(listed[0], 1, 1, {0: listed[0]}))
    assert await store.mirror.planned(POOL, "t", {0: listed[0]}) == listed[2]
    assert await at(store, keys.GROUP_NOTIFIER) == listed[2]
