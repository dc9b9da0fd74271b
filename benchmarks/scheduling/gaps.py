"""How far apart the service of two tenants of one tier drifted while both were waiting. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from services.scheduler.simulate.arrivals import Ran

_MOST = 8  # tenants of a tier that are compared: those that waited longest
Spans = list[tuple[int, int]]


def worst_gap_s(jobs: Sequence[Ran], tier: str, until_ms: int) -> float:
    """Return the largest difference of device time that two tenants of the tier got over any interval in which both
    had jobs waiting all the time.
    """
    by_tenant: dict[str, list[Ran]] = defaultdict(list)
    for job in jobs:
        if job.arrival.tier == tier:
            by_tenant[job.arrival.tenant_id].append(job)
    spans = {tenant: _waiting(mine, until_ms) for tenant, mine in by_tenant.items()}
    longest = sorted(spans, key=lambda tenant: (-sum(end - begin for begin, end in spans[tenant]), tenant))[:_MOST]
    pairs = combinations(longest, 2)
    return max((_gap_ms(by_tenant[a], by_tenant[b], _both(spans[a], spans[b])) for a, b in pairs), default=0) / 1000


def _waiting(jobs: Sequence[Ran], until_ms: int) -> Spans:
    changes = sorted(
        change
        for job in jobs
        for change in ((job.arrival.at_ms, 1), (until_ms if job.start_ms is None else job.start_ms, -1))
    )
    spans, begin_ms, count = [], 0, 0
    for at_ms, change in changes:
        if count == 0:
            begin_ms = at_ms
        count += change
        if count == 0 and at_ms > begin_ms:
            spans.append((begin_ms, at_ms))
    return spans


def _both(one: Spans, other: Spans) -> Spans:
    found = [(max(a, c), min(b, d)) for a, b in one for c, d in other]
    return [(begin, end) for begin, end in found if begin < end]


def _gap_ms(one: Sequence[Ran], other: Sequence[Ran], spans: Spans) -> int:
    worst = 0
    for begin_ms, end_ms in spans:
        # what has been served changes its slope only where a job begins or ends
        edges = sorted({begin_ms, end_ms, *_edges(one, begin_ms, end_ms), *_edges(other, begin_ms, end_ms)})
        drift = [_served(one, begin_ms, at_ms) - _served(other, begin_ms, at_ms) for at_ms in edges]
        worst = max(worst, max(drift) - min(drift))
    return worst


def _edges(jobs: Sequence[Ran], begin_ms: int, end_ms: int) -> list[int]:
    return [at_ms for job in jobs for at_ms in _span(job) if begin_ms < at_ms < end_ms]


def _served(jobs: Sequence[Ran], begin_ms: int, end_ms: int) -> int:
    return sum(max(0, min(end, end_ms) - max(begin, begin_ms)) for begin, end in map(_span, jobs))


def _span(job: Ran) -> tuple[int, int]:
    if job.start_ms is None:
        return (0, 0)
    return (job.start_ms, job.start_ms + job.load_ms + job.arrival.run_ms)
