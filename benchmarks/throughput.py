"""No-op jobs per second from the first POST to the last completion, and the CPU time of each process per job.

Against bare workers: a stream, as many children, one XADD at the end of each entry. The stack and its load share the
machine, so this is what one small host does, not what one service could.
"""

import os
import time

import redis

from benchmarks.bare_chain import Stamps, bare_chain
from benchmarks.bare_worker import WORK
from benchmarks.figures import Row, cut_up, high, ratios, spread
from benchmarks.http_load import Plan, generate
from benchmarks.payload import payload
from benchmarks.processes import cpu_s
from benchmarks.rig import POOL, TENANT, Target, stack
from contracts.store import keys

ROUNDS = 3
SLOTS = 4
SECONDS = 1.5
LIMIT_S = 60.0
POLL_S = 0.01


def measure() -> list[Row]:
    """Interleave rounds: POST for a while, then wait until all is done."""
    with stack(f"cpu*{SLOTS}") as target, bare_chain(target.store_url, SLOTS) as stamps:
        product_round(target, 0.3)
        ours, theirs, costs = [], [], []
        for _ in range(ROUNDS):
            before = cpu_by_service(target)
            jobs, seconds = product_round(target, SECONDS)
            after = cpu_by_service(target)
            ours.append(jobs / seconds)
            costs.append({name: (after[name] - before[name]) / jobs * 1e6 for name in before})
            theirs.append(jobs / bare_round(target.store_url, stamps, jobs))
    rate = Row(
        f"no-op jobs per second, first POST to last completion, {SLOTS} slots of one worker, {os.cpu_count()} CPUs",
        high(spread(ours), "/s"),
        high(spread(theirs), "/s") + f" {SLOTS} bare children, XREADGROUP and XADD",
        high(ratios(ours, theirs), digits=2),
    )
    return [rate, _cost_row(costs)]


def product_round(target: Target, seconds: float) -> tuple[int, float]:
    """Return how many jobs were done in how many seconds."""
    plan = Plan("127.0.0.1", target.port, "/v1/jobs", payload().decode(), target.key, connections=8, seconds=seconds)
    with redis.Redis.from_url(target.store_url) as client:
        begun_s, before = time.monotonic(), _closed(client)
        outcome = generate(plan)
        while (done := _closed(client) - before) < outcome.answered:
            if time.monotonic() > begun_s + seconds + LIMIT_S:
                raise TimeoutError(f"{done} of {outcome.answered} jobs were done")
            time.sleep(POLL_S)
        return done, time.monotonic() - begun_s


def bare_round(store_url: str, stamps: Stamps, jobs: int) -> float:
    """Return the seconds that the baseline takes for as many."""
    begun_s = time.monotonic()
    with redis.Redis.from_url(store_url) as client:
        for _ in range(jobs):
            client.xadd(WORK, {"ms": 0, "d": payload()})
    for _ in range(jobs):
        stamps.next()
    return time.monotonic() - begun_s


def cpu_by_service(target: Target) -> dict[str, float]:
    """Return the CPU seconds of all processes of each service so far."""
    return {name: sum(cpu_s(pid) or 0.0 for pid in pids) for name, pids in target.pids.items()}


def _closed(client: redis.Redis) -> int:
    return int(client.zcount(keys.jobs(POOL, TENANT), 1, 1))


def _cost_row(costs: list[dict[str, float]]) -> Row:
    middle = {name: spread([cost[name] for cost in costs]).mid for name in costs[0]}
    each = ", ".join(f"{name} {cut_up(us, 0)}" for name, us in middle.items())
    return Row("CPU time of one no-op job, microseconds", f"{cut_up(sum(middle.values()), 0)}: {each}", "")
