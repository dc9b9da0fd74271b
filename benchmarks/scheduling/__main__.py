"""`make bench-scheduling`: every workload through the policy and through simpler ones, five seeds, medians.

Twice for the policy: devices that keep several models, as far as their bytes go (how the bars were stated), and slots
that keep one (`HEADRACE_WORKER__MAX_MODELS=1`). `python -m benchmarks.scheduling NAME ...` runs some workloads only.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, replace

from benchmarks.scheduling import baselines
from benchmarks.scheduling.bars import Figures, figures, verdicts
from benchmarks.scheduling.workloads import WORKLOADS
from contracts.policy import SchedulingPolicy
from services.scheduler.simulate.arrivals import Arrival
from services.scheduler.simulate.changes import from_the_start
from services.scheduler.simulate.clocked import Scheduler, simulate
from services.scheduler.simulate.fleet import Device
from services.scheduler.simulate.folded import Folded

SEEDS = (7, 11, 12, 13, 14)
SEVERAL = 64  # models: their bytes are what limits them
SFQ = SchedulingPolicy(lead_s=0, bypass_s=0, hold=False, tier_floors={})
Make = Callable[[Sequence[Device], Sequence[Arrival]], Scheduler]
POLICIES: dict[str, tuple[int, Make]] = {
    "BLFQ": (SEVERAL, lambda devices, jobs: folded(devices, jobs, SchedulingPolicy())),
    "BLFQ, one model a slot": (1, lambda devices, jobs: folded(devices, jobs, SchedulingPolicy())),
    "SFQ": (SEVERAL, lambda devices, jobs: folded(devices, jobs, SFQ)),
    "FIFO": (SEVERAL, lambda devices, jobs: baselines.fifo()),
    "strict priority": (SEVERAL, lambda devices, jobs: baselines.strict()),
    "round robin": (SEVERAL, lambda devices, jobs: baselines.round_robin()),
}
_HEAD = "| {:22} | {:>6} | {:>9} | {:>14} | {:>12} | {:>5} | {:>12} | {:>6} |"
_ROW = "| {:22} | {:6.3f} | {:9.1f} | {:14.0f} | {:12.0f} | {:5.0f} | {:12.2f} | {:6.0f} |"
_COLUMNS = ("policy", "useful", "swaps/100", "enterprise p99", "others p99", "L", "rare/popular", "gap")


def folded(devices: Sequence[Device], arrivals: Sequence[Arrival], policy: SchedulingPolicy) -> Folded:
    """Return the real scheduler under one policy."""
    tiers = {arrival.tenant_id: arrival.tier for arrival in arrivals}
    return Folded(devices, arrivals, [from_the_start(tiers, policy)])


def run(name: str, policy: str, seed: int) -> Figures:
    """Simulate one workload under one policy."""
    workload, (models, make) = WORKLOADS[name](seed), POLICIES[policy]
    devices = tuple(replace(device, models=models) for device in workload.devices)
    jobs = simulate(workload.arrivals, devices, make(devices, workload.arrivals), workload.until_ms)
    return figures(jobs, workload)


def main() -> None:
    """Measure and print; times are of the simulated clock, so a busy machine changes nothing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scheduling", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    names = parser.parse_args().names or list(WORKLOADS)
    if unknown := sorted(set(names) - set(WORKLOADS)):
        parser.error(f"there is no {', '.join(unknown)}; choose from {', '.join(WORKLOADS)}")
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        for name in names:
            print(f"\n{name}: {WORKLOADS[name].__doc__} Seconds; medians of {len(SEEDS)} seeds.\n")
            print(_HEAD.format(*_COLUMNS))
            print("|", " | ".join("-" * 3 for _ in _COLUMNS), "|")
            for policy in POLICIES:
                runs = [processes.submit(run, name, policy, seed) for seed in SEEDS]
                found = Figures(*map(statistics.median, zip(*(astuple(one.result()) for one in runs), strict=True)))
                print(_ROW.format(policy, *astuple(found)), flush=True)
                if policy.startswith("BLFQ"):
                    for line in verdicts(name, found):
                        print(f"    {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
