"""The made-up load against the published fit of GenTD26: what a bar stated for such load is worth rests on this."""

import random
import statistics
from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest

from benchmarks.scheduling import gentd26, workloads
from benchmarks.scheduling.gentd26 import Crowd
from services.scheduler.simulate.arrivals import Arrival

SECONDS = round(23.03 * 86_400)
REQUESTS = 26_823
TENANTS = 4_247


@cache
def month(seed: int) -> list[Arrival]:
    chance = random.Random(seed)
    crowd = Crowd("standard", gentd26.MEAN_RUN_S * REQUESTS / SECONDS, TENANTS, 6)
    known = gentd26.models(chance)
    return gentd26.arrivals(chance, known, [crowd], 1, SECONDS, gentd26.tide(chance, SECONDS))


@pytest.fixture(scope="module")
def jobs() -> list[Arrival]:
    return month(7)


def quantiles(values: Sequence[float], *shares: float) -> list[float]:
    ordered = sorted(values)
    return [ordered[int(len(ordered) * share)] for share in shares]


def test_runs_take_as_long_as_in_the_trace(jobs: list[Arrival]) -> None:
    runs_s = [job.run_ms / 1000 for job in jobs]

    assert statistics.fmean(runs_s) == pytest.approx(28.7, rel=0.05)
    assert quantiles(runs_s, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99) == pytest.approx([17, 23, 33, 53, 69, 106], rel=0.2)


def test_loads_are_quick_from_the_cache_and_slow_from_the_disk(jobs: list[Arrival]) -> None:
    loads_s = [job.load_ms / 1000 for job in jobs]

    assert quantiles(loads_s, 0.25, 0.5, 0.75, 0.95, 0.99) == pytest.approx([3.1, 22.7, 36.9, 45.4, 51.8], rel=0.25)


def test_models_and_tenants_are_as_skewed_as_in_the_trace(jobs: list[Arrival]) -> None:
    models, tenants = Counter(job.model for job in jobs), Counter(job.tenant_id for job in jobs)

    assert _top(models, 1, 5, 10) == pytest.approx([0.307, 0.704, 0.867], abs=0.04)
    assert _top(tenants, 1, 10) == pytest.approx([0.045, 0.147], abs=0.04)


def test_a_tenant_comes_back_soon_and_mostly_with_the_same_model(jobs: list[Arrival]) -> None:
    last: dict[str, Arrival] = {}
    gaps_s, same = [], []
    for job in jobs:
        before = last.get(job.tenant_id)
        if before is not None:
            gaps_s.append((job.at_ms - before.at_ms) / 1000)
            same.append(before.model == job.model)
        last[job.tenant_id] = job

    assert statistics.fmean(same) == pytest.approx(0.72, abs=0.06)
    assert quantiles(gaps_s, 0.5, 0.75) == pytest.approx([73, 159], rel=0.25)


@pytest.mark.parametrize(
    ("window_s", "dispersion"), [(60, 3.8), (300, 15), (3_600, 140), (86_400, 670)], ids="{}s".format
)  # fmt: skip
def test_arrivals_are_as_uneven_as_in_the_trace_from_minutes_to_days(window_s: int, dispersion: float) -> None:
    """Within a factor of two: 23 days are few, and the trace is one draw itself."""
    found = statistics.median(_dispersion(month(seed), window_s) for seed in (7, 11, 12))

    assert dispersion / 2 < found < dispersion * 2


def test_bursts_bring_as_much_work_as_a_steady_stream() -> None:
    """A rate that was drawn in a quiet moment once carried the arrivals past the next bursts."""
    asked = {
        name: statistics.median(sum(job.run_ms for job in make(seed).arrivals) for seed in (7, 11, 12, 13, 14))
        for name, make in (("steady", workloads.steady), ("bursty", workloads.bursty))
    }

    assert asked["bursty"] == pytest.approx(asked["steady"], rel=0.2)


def _top(counted: Counter[str], *ranks: int) -> list[float]:
    ordered = sorted(counted.values(), reverse=True)
    return [sum(ordered[:rank]) / counted.total() for rank in ranks]


def _dispersion(jobs: Sequence[Arrival], window_s: int) -> float:
    counts = Counter(job.at_ms // 1000 // window_s for job in jobs)
    each = [counts[window] for window in range(-(-SECONDS // window_s))]
    return statistics.pvariance(each) / statistics.fmean(each)
