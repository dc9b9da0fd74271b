"""Planning: the notifier's agent against plain XREADGROUP loops over the same log, in events per CPU second.

Two logs: events that nobody subscribes to, against a loop that reads, decodes and acknowledges them; and events that
each call for a delivery, against a loop that plans and stores the same deliveries without Faust.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import chain

import orjson
import structlog
import uvloop

from benchmarks.figures import Row, high, ratios, spread
from benchmarks.rig import own_store
from contracts import events as ev
from contracts import ids
from contracts.positions import entry_key
from contracts.store import Store, keys
from contracts.store.jobs import Limits
from contracts.store.write import Write
from contracts.wire import wire_type
from services.notifier.payload import Links
from services.notifier.planner import GROUP, Planner
from services.notifier.projection.app import assemble, from_groups
from services.notifier.projection.source import BATCH

POOL, TENANT = "default", "t_bench"
ROUNDS = 5
UNWANTED, WANTED = 10_000, 1_500
BAR = 0.5
LOG = structlog.get_logger()

Reading = Callable[[Store], Awaitable[None]]


def measure() -> list[Row]:
    """Interleave rounds of both sides; the first of each is a warm-up."""
    with own_store() as (url, _):
        return uvloop.run(_measure(url))


async def _measure(url: str) -> list[Row]:
    store = Store(url)
    unwanted = await _rounds(store, _write_unwanted, UNWANTED, _bare_loop)
    wanted = await _rounds(store, _write_wanted, WANTED, _loop_that_plans)
    await store.aclose()
    return [
        _row("planning, events nobody subscribes to", unwanted, "read, decoded, acknowledged"),
        _row("planning, a delivery for each event", wanted, "the same planning without Faust"),
    ]


def _row(what: str, rates: tuple[list[float], list[float]], baseline: str) -> Row:
    ratio = ratios(*rates)
    ours, plain = (high(spread(side)) for side in rates)
    return Row(
        f"{what}, per CPU second", ours, f"{plain} XREADGROUP loop: {baseline}", high(ratio, digits=2),
        f"at least {BAR}", ratio.mid >= BAR,
    )  # fmt: skip


async def _rounds(
    store: Store, write: Callable[[Store, int], Awaitable[None]], count: int, plain: Reading
) -> tuple[list[float], list[float]]:
    rates: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS + 1):
        for side, reading in zip(rates, (_agent, plain), strict=True):
            await store.client.flushall()
            await store.directory.open()
            await store.open_pool(POOL)
            await write(store, count)
            begun_s = time.process_time()
            await reading(store)
            if number:
                side.append(count / (time.process_time() - begun_s))
    return rates


async def _write_unwanted(store: Store, count: int) -> None:
    progress = ev.JobProgress(progress=50)
    pipe = store.client.pipeline(transaction=False)
    for number in range(count):
        fields = {"t": wire_type(progress), "j": _job_id(number), "n": 2, "f": 1, "p": "1-1", "d": progress.to_json()}
        pipe.execute_command("XADD", keys.log(POOL), "*", *chain.from_iterable(fields.items()))
    await pipe.execute()


async def _write_wanted(store: Store, count: int) -> None:
    for number in range(count):
        created = ev.JobCreated(
            tenant_id=TENANT, model="echo@1", timeout_ms=60_000, body_bytes=20, webhook_events=("job.created",)
        )
        spec = {"prompt": "x", "webhookUrl": "https://example.com/hook", "webhookEvents": ["job.created"]}
        write = Write(_job_id(number), (created,), hooked=frozenset({"job.created"}))
        await store.jobs.admit(POOL, write, orjson.dumps(spec), TENANT, Limits())


def _job_id(number: int) -> str:
    return ids.mint_job_id(1_764_457_200_000, number, "aa")


async def _planner(store: Store) -> Planner:
    links = Links("https://gen.example", b"s")
    return Planner(store, await store.open_pool(POOL), links=links, planned=lambda: None, log=LOG)


async def _agent(store: Store) -> None:
    """The notifier without what sends."""
    feed = from_groups(store, "bench", LOG, 20)
    app = assemble({POOL: await _planner(store)}, feed, [])
    await app.start()
    while not await _is_done(store):  # noqa: ASYNC110  the store sets no event in this process
        await asyncio.sleep(0.05)
    await app.stop()


async def _is_done(store: Store) -> bool:
    needed, end = await store.needed_by(POOL, GROUP), await store.end_of_log(POOL)
    return entry_key(needed) > entry_key(end)


async def _bare_loop(store: Store) -> None:
    reader = store.group(POOL, GROUP, "bench")
    while messages := await reader.read(BATCH, 20):
        for message in messages:
            message.entry()
        await store.client.xack(keys.log(POOL), GROUP, *[message.position for message in messages])


async def _loop_that_plans(store: Store) -> None:
    planner = await _planner(store)
    reader = store.group(POOL, GROUP, "bench")
    while messages := await reader.read(BATCH, 20):
        await planner.plan([message.entry() for message in messages], in_group=True)
