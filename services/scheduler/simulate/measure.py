"""What a simulated (or recorded) run was worth: waits, use of the devices, swaps, shares. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from services.scheduler.simulate.arrivals import Ran


@dataclass(frozen=True, slots=True)
class Waits:
    """Percentiles of the wait from arrival to start, in s; a job that never started has waited until the end."""

    jobs: int
    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class Use:
    """What the devices did. Shares are of all device time until the end."""

    started: int
    useful_share: float  # running jobs
    busy_share: float  # and loading models
    swaps_per_100: float


def waits(jobs: Iterable[Ran], until_ms: int) -> Waits:
    """Return the percentiles of these jobs' waits."""
    found = sorted(wait_ms(job, until_ms) for job in jobs)
    return Waits(len(found), *(percentile(found, share) / 1000 for share in (0.5, 0.95, 0.99)))


def wait_ms(job: Ran, until_ms: int) -> int:
    """Return how long the job has waited by `until_ms`."""
    return (until_ms if job.start_ms is None else job.start_ms) - job.arrival.at_ms


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` of all are not above; 0 of nothing.

    >>> percentile([1, 2, 3, 4], 0.5), percentile([], 0.5)
    (2, 0)
    """
    if not ascending:
        return 0
    return ascending[max(0, -(-len(ascending) * round(share * 1000) // 1000) - 1)]


def use(jobs: Iterable[Ran], device_count: int, until_ms: int) -> Use:
    """Return what the devices did until `until_ms`."""
    started = [job for job in jobs if job.start_ms is not None]
    total_ms = max(1, device_count * until_ms)
    running_ms = sum(_inside(job, until_ms, loading=False) for job in started)
    loading_ms = sum(_inside(job, until_ms, loading=True) for job in started)
    swaps = sum(job.load_ms > 0 for job in started)
    share = swaps * 100 / max(1, len(started))
    return Use(len(started), running_ms / total_ms, (running_ms + loading_ms) / total_ms, share)


def group(jobs: Iterable[Ran], key: Callable[[Ran], str]) -> dict[str, list[Ran]]:
    """Return the jobs by what `key` says of them."""
    found: dict[str, list[Ran]] = defaultdict(list)
    for job in jobs:
        found[key(job)].append(job)
    return dict(sorted(found.items()))


def done_share(jobs: Sequence[Ran]) -> float:
    """Return the share of jobs that ended."""
    return sum(job.end_ms is not None for job in jobs) / max(1, len(jobs))


def _inside(job: Ran, until_ms: int, *, loading: bool) -> int:
    assert job.start_ms is not None
    begins_ms = job.start_ms if loading else job.start_ms + job.load_ms
    ends_ms = begins_ms + (job.load_ms if loading else job.arrival.run_ms)
    return max(0, min(ends_ms, until_ms) - begins_ms)
