"""What a question to a leader costs it: CPU time, at a small pool and at many pending jobs, without the store.

`python -m benchmarks.question_cost [--jobs N] [--tenants N]`. The jobs are admitted through the fold; half of the
tenants have two users. First: the first question of a moment, which looks at the pool; next: another one within it.
"""

import argparse
import gc
import random
from time import process_time_ns

from benchmarks.figures import quantile
from contracts import events as ev
from contracts import questions as q
from contracts.wire import Entry
from services.scheduler.explain.oracle import Oracle
from services.scheduler.fold.state import PoolState

ROUNDS, SEED, MODELS, DEVICES = 200, 7, 87, 8


def main() -> None:
    """Print one line for each kind of question."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.question_cost", description=__doc__)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--tenants", type=int, default=0)
    chosen = parser.parse_args()
    sizes = [(chosen.jobs, chosen.tenants)] if chosen.jobs else [(100, 5), (100_000, 10_000)]
    for jobs, tenants in sizes:
        for line in measure(jobs, max(1, tenants)):
            print(f"{jobs:>9,} jobs {tenants:>7,} tenants  {line}")


def measure(jobs: int, tenants: int) -> list[str]:
    """Ask each kind of question many times, of jobs drawn at random."""
    dice = random.Random(SEED)
    state, ids = _pool(dice, jobs, tenants)
    gc.collect()
    gc.freeze()
    oracle, now_ms, lines = Oracle(state), 1_000_000, []
    kinds: tuple[q.Kind, ...] = ("place", "why", "backlog", "use")
    for kind in kinds:
        first: list[float] = []
        following: list[float] = []
        for _ in range(ROUNDS):
            now_ms += 1_000  # another moment
            for costs in (first, following):
                job = state.jobs[dice.choice(ids)]
                subject = job.tenant_id if kind == "use" else job.id
                question = q.Question(kind, subject, job.tenant_id, 60_000)
                begun = process_time_ns()
                assert oracle.answer(question, now_ms) is not None
                costs.append((process_time_ns() - begun) / 1000)
        lines.append(f"{kind:8} first us {_summary(first)}, next us {_summary(following)}")
    return lines


def _pool(dice: random.Random, jobs: int, tenants: int) -> tuple[PoolState, list[str]]:
    state, ids = PoolState(), []
    slots = (ev.SlotInfo(index=0, device="gpu", kind="sim", bytes=24 << 30),)
    models = tuple(f"model-{number}" for number in range(MODELS))
    entries: list[tuple[str, ev.Event]] = [
        (f"w{n}", ev.WorkerRegistered(worker_id=f"w{n}", host="h", pid=1, slots=slots, models=models))
        for n in range(DEVICES)
    ]
    for number in range(jobs):
        tenant = int(tenants * dice.random() ** 2)
        model = f"{models[int(MODELS * dice.random() ** 2)]}@1"
        user = f"u{dice.randint(0, 1)}" if tenant % 2 else None
        created = ev.JobCreated(
            tenant_id=f"t_{tenant}", model=model, timeout_ms=60_000, vram_bytes=4 << 30, user_digest=user
        )
        ids.append(f"job_{number:08}")
        entries.append((ids[-1], created))
    for seq, (subject, event) in enumerate(entries):
        state.apply(Entry(f"900000-{seq}", event.TYPE, subject, event.to_json().encode()))
    return state, ids


def _summary(costs_us: list[float]) -> str:
    return f"{quantile(costs_us, 0.5):,.0f} (p99 {quantile(costs_us, 0.99):,.0f})"


if __name__ == "__main__":
    main()
