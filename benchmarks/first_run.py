"""Idle POST -> the author's run() begins, against a bare XADD -> blocked XREADGROUP -> frame to a child.

One request at a time, with a pause in which everything falls idle. Both sides end at a reading of the monotonic clock
as the first thing in the child, so all that differs is what lies between.
"""

import asyncio
import time

import redis

from benchmarks.bare_chain import Stamps, bare_chain
from benchmarks.bare_worker import WORK
from benchmarks.figures import Row, low, quantile, ratios, spread
from benchmarks.http_load import Plan
from benchmarks.payload import payload
from benchmarks.rig import Target, stack
from benchmarks.stamps import stamped
from benchmarks.submit import Submitter

ROUNDS = 5
JOBS = 40
PAUSE_S = 0.025
RATIO_BAR = 5.0


def measure() -> list[Row]:
    """Interleave rounds of both chains on one store."""
    with stack("cpu*1") as target, bare_chain(target.store_url, slots=1) as stamps:
        product_round(target, 10)
        bare_round(target.store_url, stamps, 10)
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours.append(product_round(target, JOBS))
            theirs.append(bare_round(target.store_url, stamps, JOBS))
    return [_row(ours, theirs, 0.5, RATIO_BAR), _row(ours, theirs, 0.95, None)]


def product_round(target: Target, jobs: int) -> list[float]:
    """Return milliseconds from before the POST is written to the first line of run()."""
    sent: dict[str, int] = {}
    with Submitter(Plan("127.0.0.1", target.port, "/v1/jobs", payload("stamp").decode(), target.key)) as submitter:
        for _ in range(jobs):
            time.sleep(PAUSE_S)
            job_id, sent_ns = submitter.submit()
            sent[job_id] = sent_ns
    time.sleep(PAUSE_S)
    found = asyncio.run(stamped(target.store_url, list(sent)))
    return [(one.began_ns - sent[one.job_id]) / 1e6 for one in found]


def bare_round(store_url: str, stamps: Stamps, jobs: int) -> list[float]:
    """Return milliseconds from before the XADD to the child's stamp."""
    taken = []
    body = payload("stamp")
    with redis.Redis.from_url(store_url) as client:
        client.ping()
        for _ in range(jobs):
            time.sleep(PAUSE_S)
            sent_ns = time.monotonic_ns()
            client.xadd(WORK, {"ms": 0, "d": body})
            taken.append((stamps.next()["beganNs"] - sent_ns) / 1e6)
    return taken


def _row(ours: list[list[float]], theirs: list[list[float]], share: float, bar: float | None) -> Row:
    mine, bare = [quantile(taken, share) for taken in ours], [quantile(taken, share) for taken in theirs]
    ratio = ratios(mine, bare)
    return Row(
        f"idle POST to the first line of run(), p{share * 100:.0f}",
        low(spread(mine), " ms"),
        low(spread(bare), " ms") + " bare XADD, XREADGROUP, child frame",
        low(ratio),
        f"at most {bar:.0f}" if bar else "",
        ratio.mid <= bar if bar else None,
    )
