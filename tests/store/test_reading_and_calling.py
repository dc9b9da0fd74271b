"""Readers and the batcher against a real server that restarts, loses groups and fills up."""

import asyncio
import re
import signal

import pytest
from redis.exceptions import ResponseError

from contracts import events as ev
from contracts import ids
from contracts.errors import ConfigError, StoreFull, StoreUnavailable
from contracts.store import Store, Word, keys
from contracts.store.clients import as_store_error, check_url
from contracts.store.jobs import Limits
from contracts.store.log import Poison
from contracts.store.write import Write
from tests.servers import Server

POOL = "default"


def job_id(number: int) -> str:
    return ids.mint_job_id(1_764_457_200_000 + number, number, "aa")


async def admit(store: Store, number: int, body: bytes = b"{}") -> str:
    name = job_id(number)
    created = ev.JobCreated(tenant_id="t_a", model="echo@1", timeout_ms=1_000, body_bytes=len(body))
    answer = await store.jobs.admit(POOL, Write(name, (created,)), body, "t_a", Limits())
    assert answer.word is Word.APPLIED
    return name


async def test_what_a_dead_consumer_read_is_found_by_its_successor_of_the_same_name(store: Store) -> None:
    await admit(store, 1)
    first = await store.group(POOL, keys.GROUP_NOTIFIER, "n1").read(block_ms=100)

    again = await store.group(POOL, keys.GROUP_NOTIFIER, "n1").read(block_ms=100)

    assert [message.position for message in again] == [message.position for message in first]
    assert len(again) == 1


async def test_what_another_consumer_left_is_taken_over(store: Store) -> None:
    await admit(store, 1)
    await store.group(POOL, keys.GROUP_NOTIFIER, "dead").read(block_ms=100)

    _, taken = await store.group(POOL, keys.GROUP_NOTIFIER, "alive").take_over(idle_ms=0)

    assert len(taken) == 1


async def test_a_group_that_was_lost_is_made_again_at_its_cursor_and_not_at_the_beginning(store: Store) -> None:
    """why.md 23: a group made again at 0 would send a day of webhooks again."""
    await admit(store, 1)
    reader = store.group(POOL, keys.GROUP_NOTIFIER, "n1")
    (message,) = await reader.read(block_ms=100)
    await store.deliveries.plan(POOL, keys.GROUP_NOTIFIER, [], [message.position])
    await store.client.xgroup_destroy(keys.log(POOL), keys.GROUP_NOTIFIER)
    second = await admit(store, 2)

    messages = await reader.read(block_ms=100) or await reader.read(block_ms=100)

    subjects = [entry.subject for message in messages if not isinstance(entry := message.entry(), Poison)]
    assert subjects == [second]


async def test_an_entry_that_cannot_be_read_is_poison_and_the_next_one_is_read(store: Store) -> None:
    await store.client.xadd(keys.log(POOL), {"nonsense": "1"})
    good = await admit(store, 1)

    entries = await store.tail(POOL, "0-0").read()

    assert isinstance(entries[0], Poison)
    assert not isinstance(entries[1], Poison)
    assert entries[1].subject == good


async def test_a_reader_goes_on_after_a_kill_of_the_store_and_nothing_is_lost_or_doubled(own_server: Server) -> None:
    """Field case 117."""
    store = Store(own_server.url)
    await store.directory.open()
    await store.open_pool(POOL)
    await admit(store, 1)
    reader = store.tail(POOL, "0-0")
    seen = [entry.position for entry in await reader.read()]
    own_server.stop(signal.SIGKILL)
    with pytest.raises(StoreUnavailable):
        await reader.read(block_ms=100)
    own_server.start()
    await admit(store, 2)

    seen += [entry.position for entry in await reader.read()]

    assert len(seen) == len(set(seen)) == 2
    await store.aclose()


async def test_a_blocked_read_that_is_longer_than_the_command_timeout_is_no_error(store: Store) -> None:
    """Field case 115: the reader's own socket time-out lies above its BLOCK."""
    connections = (await store.client.info("stats"))["total_connections_received"]
    tail = store.tail(POOL, "0-0")
    assert await tail.read(block_ms=1_500) == []
    assert await tail.read(block_ms=1_500) == []

    after = (await store.client.info("stats"))["total_connections_received"]
    assert after - connections <= 2


async def test_calls_made_together_leave_in_one_pipeline_and_in_order(store: Store) -> None:
    await admit(store, 0)
    before = (await store.client.info("stats"))["total_net_input_bytes"]
    names = await asyncio.gather(*(admit(store, n) for n in range(1, 51)))
    assert before > 0

    entries = await store.tail(POOL, "0-0").read()

    assert [entry.subject for entry in entries if not isinstance(entry, Poison)][1:] == list(names)


async def test_a_call_whose_caller_is_gone_is_not_sent(store: Store) -> None:
    """Field case 119: no job appears later from a request that was already answered with 503."""
    await store.client.client_pause(300)
    blocker = asyncio.create_task(store.jobs.page(POOL, "t_a"))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(admit(store, 1))
    await asyncio.sleep(0)
    waiting.cancel()

    await blocker

    assert await store.jobs.page(POOL, "t_a") == []


async def test_the_library_is_loaded_again_on_a_server_that_lost_it(store: Store) -> None:
    await admit(store, 1)
    await store.client.function_flush()

    assert await admit(store, 2) == job_id(2)


async def test_a_full_store_refuses_new_jobs_and_nothing_else(store: Store) -> None:
    """Field cases 29 and 125."""
    await admit(store, 1)
    await store.client.config_set("maxmemory", 1)

    with pytest.raises(StoreFull):
        await admit(store, 2)
    assert (await store.leadership.lead(POOL, "tok", 1_000))[0]
    assert await store.jobs.page(POOL, "t_a") == [job_id(1)]


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hidden/secret@host/0",
        "redis://:hidden@host:secret/0",
        "redis://:secret@host:99999999/0",
        "http://:secret@host",
        "secret@host:6379",
        "secret",
        "unix://?db=secret",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_and_never_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="HEADRACE_REDIS__URL") as caught:
        check_url(url)
    assert not {"secret", "hidden"} & set(re.findall(r"[a-z]+", str(caught.value)))
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("url", ["redis://:p%2Fw@h:6379/0", "rediss://user:pw@h/1", "unix:///a%20b.sock?db=2"])
def test_a_url_that_can_be_read_is_taken(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize("url", ["rediss+sentinel://a", "redis+cluster://a", "http://a", ""])
def test_an_unsupported_mode_is_refused_with_a_clear_text(url: str) -> None:
    """Field case 41: an unsupported mode fails at start, never half works."""
    with pytest.raises(ConfigError, match="HEADRACE_REDIS__URL"):
        check_url(url)


@pytest.mark.parametrize(
    "text",
    [
        "MISCONF Errors writing to the AOF file: No space left on device",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        "NOREPLICAS Not enough good replicas to write.",
        "BUSY Redis is busy running a script.",
        "LOADING Redis is loading the dataset in memory",
    ],
)
def test_an_error_that_says_not_now_is_an_outage_and_no_fault_of_the_call(text: str) -> None:
    assert isinstance(as_store_error(ResponseError(text)), StoreUnavailable)


@pytest.mark.parametrize("text", ["BUSYGROUP Consumer Group name already exists", "WRONGTYPE Operation", "ERR unknown"])
def test_an_error_of_the_call_itself_is_never_taken_for_an_outage(text: str) -> None:
    """Repeated for ever, it would never succeed."""
    assert not isinstance(as_store_error(ResponseError(text)), StoreUnavailable)
