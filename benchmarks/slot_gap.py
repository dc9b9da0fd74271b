"""The gap between two jobs on a slot with one on deck: end of A's run() to the first line of B's run().

Against a child that is fed by a loop with one XADD between two jobs. Counted are only pairs where the log shows that
B was assigned before A gave its device back; a gap without a job on deck is a wait for the scheduler.
The floor of it is one call of `release_and_start`, there and back, by a client and a store of their own that do nothing
else and have rested as long as a job runs: B may not begin before that answer is here.
"""

import asyncio
import time
from itertools import pairwise
from statistics import mean

import redis
import uvloop

from benchmarks.bare_chain import Stamps, bare_chain
from benchmarks.bare_worker import WORK
from benchmarks.calls import POOL, Script
from benchmarks.figures import Row, cut_up, low, quantile, spread
from benchmarks.http_load import Plan
from benchmarks.payload import payload
from benchmarks.rig import Target, own_store, stack
from benchmarks.stamps import Stamped, stamped
from benchmarks.submit import Submitter
from contracts.positions import entry_key
from contracts.store import Store

ROUNDS = 4
JOBS = 50
RUN_MS = 20
GAP_BAR_MS = 0.5


def measure() -> list[Row]:
    """Interleave rounds of a queue that is worked off."""
    with stack("cpu*1") as target, bare_chain(target.store_url, slots=1) as stamps:
        product_round(target, 5)
        ours, theirs, floors = [], [], []
        for _ in range(ROUNDS):
            ours.append(product_round(target, JOBS))
            theirs.append(bare_round(target.store_url, stamps, JOBS))
            floors.append(floor_round(JOBS))
    means = spread([mean(gaps) for gaps in ours])
    bare = spread([mean(gaps) for gaps in theirs])
    floor = spread([mean(calls) for calls in floors])
    counted = sum(len(gaps) for gaps in ours)
    worst = quantile([gap for gaps in ours for gap in gaps], 0.99)
    return [
        Row(
            f"gap between two jobs on a slot, one on deck, mean ({counted} of {ROUNDS * (JOBS - 1)} had one; "
            f"p99 {cut_up(worst)} ms)",
            low(means, " ms"),
            low(bare, " ms") + " bare child, one XADD between",
            low(spread([mean(a) / mean(b) for a, b in zip(ours, theirs, strict=True)])),
            f"at most {GAP_BAR_MS} ms",
            means.mid <= GAP_BAR_MS,
        ),
        Row(
            "the same, beside the one call that has to be answered first",
            low(means, " ms"),
            low(floor, " ms") + f" release_and_start alone, after {RUN_MS} ms of rest",
            low(spread([mean(a) / mean(b) for a, b in zip(ours, floors, strict=True)])),
        ),
    ]


def product_round(target: Target, jobs: int) -> list[float]:
    """Submit `jobs` at once and return the gaps in milliseconds between those that had a successor on deck."""
    plan = Plan("127.0.0.1", target.port, "/v1/jobs", payload("stamp", ms=RUN_MS).decode(), target.key)
    with Submitter(plan) as submitter:
        submitted = [submitter.submit()[0] for _ in range(jobs)]
    found = asyncio.run(stamped(target.store_url, submitted))
    return [(b.began_ns - a.ended_ns) / 1e6 for a, b in pairwise(found) if _on_deck(a, b)]


def bare_round(store_url: str, stamps: Stamps, jobs: int) -> list[float]:
    """The same for the baseline."""
    with redis.Redis.from_url(store_url) as client:
        for _ in range(jobs):
            client.xadd(WORK, {"ms": RUN_MS})
    read = [stamps.next() for _ in range(jobs)]
    return [(b["beganNs"] - a["endedNs"]) / 1e6 for a, b in pairwise(read)]


def floor_round(calls: int) -> list[float]:
    """Return the milliseconds of each call that ends one job's device part and starts the next."""
    with own_store() as (url, _):
        return uvloop.run(_floor(url, calls))


async def _floor(url: str, calls: int) -> list[float]:
    store = Store(url)
    await store.directory.open()
    await store.open_pool(POOL)
    script = await Script.prepare(store, calls + 1)
    for number in range(calls + 1):
        await script.admit(number)
    await script.offer(range(calls + 1))
    await script.start(0)
    taken_ms = []
    for number in range(calls):
        await asyncio.sleep(RUN_MS / 1000)
        begun_s = time.perf_counter()
        await script.hand_over(number)
        taken_ms.append((time.perf_counter() - begun_s) * 1000)
    await store.aclose()
    return taken_ms


def _on_deck(a: Stamped, b: Stamped) -> bool:
    return a.slot == b.slot and entry_key(b.assigned) < entry_key(a.released)
