"""The same arrivals under two policies or fleets, side by side. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contracts.events import PolicyFacts
from services.scheduler.simulate.arrivals import Arrival, Ran
from services.scheduler.simulate.changes import Change, altered
from services.scheduler.simulate.clocked import simulate
from services.scheduler.simulate.fleet import Device
from services.scheduler.simulate.folded import BEGIN_MS, Folded
from services.scheduler.simulate.measure import Use, Waits, group, use, waits
from services.scheduler.simulate.recorded import Recorded

MOST_TENANTS = 10  # by jobs
_DAY_MS = 86_400_000  # for holds and start-by clocks; a job that fits nowhere must not keep the clock going for ever


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is given beside the arrivals. `begin_ms`: the wall time of the simulated clock's 0."""

    devices: Sequence[Device]
    changes: Sequence[Change]
    begin_ms: int = BEGIN_MS


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. `waits`: by `all`, `tier <name>` and `tenant <id>`."""

    waits: dict[str, Waits]
    use: Use
    never_started: int


def compare(
    recorded: Recorded, fleet: Sequence[Device], knobs: PolicyFacts, weights: Mapping[str, float]
) -> tuple[Outcome, Outcome]:  # fmt: skip
    """Return what came of what was recorded: as it was, and on this fleet with these knobs and weights."""
    arrivals = recorded.arrivals()
    before = Setting(recorded.fleet or fleet, recorded.changes(), recorded.begin_ms())
    after = Setting(fleet, altered(before.changes, knobs, weights), before.begin_ms)
    return run(arrivals, before), run(arrivals, after)


def run(arrivals: Sequence[Arrival], setting: Setting) -> Outcome:
    """Simulate until nothing happens any more."""
    rules = [rule for _, applied in setting.changes for rule in (applied.tenants or {}).values()]
    has_budgets = any(rule.gpu_seconds_per_day is not None for rule in rules)
    ends_ms = max([arrival.at_ms for arrival in arrivals] + [at_ms for at_ms, _ in setting.changes])
    ends_ms += sum(one.run_ms + one.load_ms for one in arrivals)
    ends_ms += _DAY_MS * (1 + len(arrivals) if has_budgets else 1)  # a day's budget lets one job start at least
    scheduler = Folded(setting.devices, arrivals, setting.changes, setting.begin_ms)
    jobs = simulate(arrivals, setting.devices, scheduler, ends_ms)
    until_ms = max(job.arrival.at_ms if job.end_ms is None else job.end_ms for job in jobs)
    found = {name: waits(several, until_ms) for name, several in _groups(jobs).items()}
    return Outcome(found, use(jobs, len(setting.devices), until_ms), sum(job.start_ms is None for job in jobs))


def _groups(jobs: Sequence[Ran]) -> dict[str, Sequence[Ran]]:
    tenants = group(jobs, lambda job: f"tenant {job.arrival.tenant_id}")
    largest = sorted(tenants.items(), key=lambda named: (-len(named[1]), named[0]))[:MOST_TENANTS]
    return {"all": jobs, **group(jobs, lambda job: f"tier {job.arrival.tier}"), **dict(largest)}
