"""The figures of one simulated run, and which of them have a bar. Pure."""

from dataclasses import dataclass

from benchmarks.scheduling.gaps import worst_gap_s
from benchmarks.scheduling.workloads import FLOOD_TENANT, POPULAR, Workload
from services.scheduler.simulate import measure
from services.scheduler.simulate.arrivals import Ran


@dataclass(frozen=True, slots=True)
class Figures:
    """What one policy made of one workload and seed."""

    useful_share: float
    swaps_per_100: float
    enterprise_p99_s: float
    others_p99_s: float  # everybody but the tenant that floods
    longest_s: float  # L: the longest time a job had a device
    rare_to_popular: float  # share of jobs done, models outside the three most asked for beside those
    gap_s: float  # worst of the tiers


def figures(jobs: list[Ran], workload: Workload) -> Figures:
    """Return the figures of a run."""
    until_ms = workload.until_ms
    used = measure.use(jobs, len(workload.devices), until_ms)
    tiers = measure.group(jobs, lambda job: job.arrival.tier)
    rare = [job for job in jobs if job.arrival.model not in POPULAR]
    popular = [job for job in jobs if job.arrival.model in POPULAR]
    return Figures(
        used.useful_share,
        used.swaps_per_100,
        measure.waits(tiers.get("enterprise", []), until_ms).p99_s,
        measure.waits([job for job in jobs if job.arrival.tenant_id != FLOOD_TENANT], until_ms).p99_s,
        max((job.load_ms + job.arrival.run_ms for job in jobs if job.start_ms is not None), default=0) / 1000,
        measure.done_share(rare) / max(1e-9, measure.done_share(popular)),
        max(worst_gap_s(jobs, tier, until_ms) for tier in tiers),
    )


def verdicts(name: str, of: Figures) -> list[str]:
    """Return the bars that are stated for this workload, each with its verdict."""
    if name == "overload":
        return [
            _verdict("useful share >= 0.93", of.useful_share >= 0.93),
            _verdict("swaps <= 10 per 100 jobs", of.swaps_per_100 <= 10),
            _verdict("enterprise p99 <= 100 s", of.enterprise_p99_s <= 100),
        ]
    if name == "flood":
        limit_s = 1.2 * of.longest_s + 60
        return [_verdict(f"p99 of all others <= 1.2 L + 60 s = {limit_s:.0f} s", of.others_p99_s <= limit_s)]
    if name == "hard":
        return [_verdict("rare done >= 0.6 of popular", of.rare_to_popular >= 0.6)]
    return []


def _verdict(text: str, holds: bool) -> str:
    return f"{text}: {'holds' if holds else 'MISSED'}"
