"""The loads that the bars are stated for, each by seed. Pure."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.scheduling import gentd26
from benchmarks.scheduling.gentd26 import GIB, Burst, Crowd
from services.scheduler.simulate.arrivals import Arrival
from services.scheduler.simulate.fleet import Device

HOURS_4_MS = 4 * 3_600_000
DEVICES = 8
FLOOD_TENANT = "t_flood"
POPULAR = frozenset(f"base{i:02}@1" for i in range(3))


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs, and for how long they are watched."""

    arrivals: list[Arrival]
    until_ms: int
    devices: tuple[Device, ...] = field(default=(Device(24 * GIB - 4 * GIB),) * DEVICES)


def overload(seed: int) -> Workload:
    """1.5 times what the fleet can do, for four hours."""
    return _of(seed, Crowd("enterprise", 0.4, 8), Crowd("standard", 0.6, 40), Crowd("free", 0.5, 120))


def steady(seed: int) -> Workload:
    """Three quarters of what the fleet can do."""
    return _of(seed, Crowd("enterprise", 0.2, 8), Crowd("standard", 0.3, 40), Crowd("free", 0.25, 120))


def bursty(seed: int) -> Workload:
    """The same, but in bursts of six times the rate, and each tenant in sessions."""
    crowds = (Crowd("enterprise", 0.2, 8, 8), Crowd("standard", 0.3, 40, 8), Crowd("free", 0.25, 120, 8))
    return _of(seed, *crowds, burst=Burst(6, 300, 1500))


def hard(seed: int) -> Workload:
    """Enterprise alone asks for 1.3 times the fleet."""
    return _of(seed, Crowd("enterprise", 1.3, 8), Crowd("standard", 0.3, 40), Crowd("free", 0.2, 120))


def swap(seed: int) -> Workload:
    """Forty models that take 30 s to load and 8 s to run."""
    chance = random.Random(seed)
    known = gentd26.models(chance, 40, run_s=8 / 1.6, load_s=30)
    crowds = (Crowd("enterprise", 0.1, 8), Crowd("standard", 0.2, 40), Crowd("free", 0.2, 120))
    return Workload(gentd26.arrivals(chance, known, crowds, DEVICES, HOURS_4_MS / 1000), HOURS_4_MS)


def flood(seed: int) -> Workload:
    """A light load, and after ten minutes one tenant sends 10,000 jobs."""
    chance = random.Random(seed)
    known = gentd26.models(chance)
    crowds = (Crowd("enterprise", 0.1, 8), Crowd("standard", 0.2, 40), Crowd("free", 0.1, 120))
    light = gentd26.arrivals(chance, known, crowds, DEVICES, HOURS_4_MS / 1000)
    burst = gentd26.flood(chance, known[0], FLOOD_TENANT, 10_000, 600_000)
    return Workload(light + burst, HOURS_4_MS)


WORKLOADS: dict[str, Callable[[int], Workload]] = {
    "overload": overload, "flood": flood, "hard": hard, "steady": steady, "bursty": bursty, "swap": swap,
}  # fmt: skip


def _of(seed: int, *crowds: Crowd, burst: Burst | None = None) -> Workload:
    chance = random.Random(seed)
    known = gentd26.models(chance)
    made = gentd26.arrivals(chance, known, crowds, DEVICES, HOURS_4_MS / 1000, burst)
    return Workload(made, HOURS_4_MS)
