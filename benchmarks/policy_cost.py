"""What the policy costs alone: CPU time and memory at many pending jobs, without store, fold or leader.

`python -m benchmarks.policy_cost [--jobs N] [--tenants N]`. Decide = one `choose` for the one device that became free;
what follows (offer, end of the job before, a new job in its place) is timed apart. Bytes: everything the policy holds
(the waiting jobs as it sees them, lanes, boards, accounts, users), divided by the jobs; the ids and the job's record in
the books belong to the fold and are not in it.
"""

import argparse
import gc
import random
import tracemalloc
from collections.abc import Callable
from time import perf_counter_ns, process_time_ns

from services.scheduler.fold import facts
from services.scheduler.fold.estimates import Estimates
from services.scheduler.fold.keeping import dump_policy
from services.scheduler.fold.lines import JobClass, Waiting, key_of
from services.scheduler.fold.placement import Place, places
from services.scheduler.fold.policy import BlfqPolicy
from services.scheduler.fold.records import Slot, Worker

MODELS, DEVICES, SEED = 87, 8, 7
ZIPF_TENANTS, ZIPF_MODELS, STICKY = 0.81, 1.43, 0.72  # as in GenTD26
WARM_UP, ROUNDS = 300, 4_000


class Bench:
    """A policy with a backlog, and devices that are always busy but for one."""

    def __init__(self, jobs: int, tenants: int) -> None:
        self.dice = random.Random(SEED)
        self.jobs, self.now_ms, self.order = jobs, 0, 0
        self.estimates = Estimates()
        self.policy = BlfqPolicy(self.estimates)
        self.classes = [JobClass(f"model-{number}@1", 4 << 30) for number in range(MODELS)]
        for job_class in self.classes:
            self.estimates.learn_run(job_class.model, "", self.dice.randint(18_000, 69_000))
            self.estimates.learn_load(job_class.model, self.dice.randint(3_000, 45_000))
        self._tenants = [f"t_{number}" for number in range(tenants)]
        self._tenant_weights = _zipf(tenants, ZIPF_TENANTS)
        self._model_weights = _zipf(MODELS, ZIPF_MODELS)
        self._last: dict[str, JobClass] = {}
        for number, tenant in enumerate(self._tenants):
            tier = ("enterprise", "standard", "free")[number % 3]
            self.policy.apply(facts.Ruled(tenant, {"enterprise": 8_000, "standard": 3_000, "free": 1_000}[tier], tier))
        names = frozenset(job_class.model for job_class in self.classes)
        self.workers = [
            Worker(f"w{number}", "0-0", names, {0: Slot(0, "gpu-0", "sim", 24 << 30)}) for number in range(DEVICES)
        ]
        self.free = 0  # the worker whose device is idle

    def waiting(self, count: int) -> list[Waiting]:
        """Draw jobs that wait: tenants and models as skewed as in the trace, a tenant mostly with its last model."""
        drawn = self.dice.choices(self._tenants, cum_weights=self._tenant_weights, k=count)
        return [self._job(tenant) for tenant in drawn]

    def _job(self, tenant: str) -> Waiting:
        job_class = self._last.get(tenant)
        if job_class is None or self.dice.random() > STICKY:
            job_class = self.dice.choices(self.classes, cum_weights=self._model_weights)[0]
            self._last[tenant] = job_class
        self.order += 1
        user = f"{tenant}-u{self.dice.randint(0, 1)}" if int(tenant[2:]) % 4 == 0 else ""
        return Waiting(key_of(2, self.order), f"job_{self.order:026}", tenant, user, job_class, 0)

    def places(self) -> list[Place]:
        """Return the places as they are now: one idle, the others busy for long."""
        return places(self.workers)


def measure(jobs: int, tenants: int) -> dict[str, object]:
    """Fill a policy, then let devices become free one after the other."""
    bench = Bench(jobs, tenants)
    backlog = bench.waiting(jobs)
    keys = {id(job): job for job in backlog}
    gc.collect()
    tracemalloc.start()
    first = tracemalloc.get_traced_memory()[0]
    shells = [Waiting(*job) for job in backlog]  # as the fold makes them: in the policy's account
    for job in shells:
        bench.policy.apply(facts.Waits(job))
    del shells
    held = tracemalloc.get_traced_memory()[0] - first
    tracemalloc.stop()
    bytes_a_job = round(held / jobs) + 32  # and the integer of the key
    del backlog, keys

    bench = Bench(jobs, tenants)
    backlog = bench.waiting(jobs)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    begun = process_time_ns()
    for job in backlog:
        bench.policy.apply(facts.Waits(job))
    submit_us = (process_time_ns() - begun) / jobs / 1000
    del backlog
    decide, settle = _serve(bench)
    begun = process_time_ns()
    dump_policy(bench.policy)
    return {
        "jobs": jobs, "tenants": tenants, "submit us": round(submit_us, 2), "decide us": _summary(decide),
        "offer + end us": _summary(settle), "bytes a job": bytes_a_job,
        "snapshot ms": (process_time_ns() - begun) // 1_000_000,
    }  # fmt: skip


def _serve(bench: Bench) -> tuple[list[int], list[int]]:
    decide: list[int] = []
    settle: list[int] = []
    running: list[tuple[str, int]] = []
    for number in range(WARM_UP + ROUNDS):
        bench.now_ms += 5_000
        worker = bench.workers[number % DEVICES]
        slot = worker.slots[0]
        slot.running_jobs.clear()
        slot.free_at_ms = 0
        found = bench.places()
        begun = perf_counter_ns()
        cpu = process_time_ns()
        _, choices = bench.policy.choose(found, [], [], bench.now_ms, 1)
        decide.append(process_time_ns() - cpu or perf_counter_ns() - begun)
        (choice,) = choices
        job = bench.policy.waiting(choice.job_id)
        assert job is not None
        ended = running.pop(0) if len(running) >= DEVICES else None
        (fresh,) = bench.waiting(1)
        cpu = process_time_ns()
        bench.policy.apply(
            facts.Charged(job.job_id, job.tenant_id, job.user, choice.est_ms, choice.phase, choice.anchor, found[0])
        )
        bench.policy.apply(facts.Leaves(job.job_id))
        if ended is not None:
            bench.policy.apply(facts.Settled(ended[0], ended[1] * bench.dice.randint(40, 230) // 100))
            bench.policy.apply(facts.Ended(ended[0]))
        settle.append(process_time_ns() - cpu)
        bench.policy.apply(facts.Waits(fresh))
        running.append((job.job_id, choice.est_ms))
        at = next(worker for worker in bench.workers if worker.id == choice.worker_id).slots[0]
        at.running_jobs[job.job_id] = 4 << 30
        at.resident, at.free_at_ms = (job.job_class.model,), bench.now_ms + 40_000
    return decide[WARM_UP:], settle[WARM_UP:]


def _summary(ns: list[int]) -> str:
    ns = sorted(ns)
    at: Callable[[float], float] = lambda share: round(ns[int(len(ns) * share)] / 1000, 1)  # noqa: E731
    return f"mean {sum(ns) / len(ns) / 1000:.1f}, p50 {at(0.5)}, p99 {at(0.99)}, p99.9 {at(0.999)}"


def _zipf(count: int, exponent: float) -> list[float]:
    total, weights = 0.0, []
    for rank in range(1, count + 1):
        total += rank**-exponent
        weights.append(total)
    return weights


def main() -> None:
    """Print one line for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--tenants", type=int)
    given = parser.parse_args()
    sizes = [(10_000, 1_000), (100_000, 10_000), (1_000_000, 100_000)]
    for jobs, tenants in [(given.jobs, given.tenants or given.jobs // 10)] if given.jobs else sizes:
        print(", ".join(f"{name}: {value}" for name, value in measure(jobs, tenants).items()), flush=True)


if __name__ == "__main__":
    main()
