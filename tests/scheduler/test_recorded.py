"""What a simulation takes from a log, and what it makes of it."""

from typing import Any

import pytest

from contracts import events as ev
from contracts.times import DAY_MS
from contracts.wire import Entry
from services.scheduler.simulate.changes import altered
from services.scheduler.simulate.clocked import simulate
from services.scheduler.simulate.compared import Setting, run
from services.scheduler.simulate.fleet import Device
from services.scheduler.simulate.folded import Folded
from services.scheduler.simulate.recorded import Recorded


class Log:
    """Entries as a leader would have written them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def write(self, at_ms: int, subject: str, event: ev.Event) -> None:
        position = f"{at_ms}-{len(self.entries)}"
        self.entries.append(Entry(position, event.TYPE, subject, event.to_json().encode()))

    def job(self, at_ms: int, name: str, tenant: str = "a", model: str = "m", **more: Any) -> None:
        self.write(at_ms, name, ev.JobCreated(tenant_id=tenant, model=model, timeout_ms=1, user_digest="u", **more))

    def tell(
        self, at_ms: int, *, weights: dict[str, float] | None = None, policy: ev.PolicyFacts | None = None,
        resources: dict[str, ev.ResourceRule] | None = None, paused: bool | None = None,
        paused_models: tuple[str, ...] | None = None, tenant_paused: bool = False, **rule: Any,
    ) -> None:  # fmt: skip
        tenants = {"a": ev.TenantRule(paused=tenant_paused, **rule)}
        told = ev.PolicyApplied(
            position="1-0", weights=weights or {"a": 3.0}, tenants=tenants, policy=policy, resources=resources,
            paused=paused, paused_models=paused_models,
        )  # fmt: skip
        self.write(at_ms, "scheduler", told)

    def attempt(self, at_ms: int, name: str, device_ms: int, load_ms: int | None, *, completed: bool = True) -> None:
        self.write(
            at_ms, name, ev.JobStarted(worker_id="w", offer_id="o", slot=0, device="d", attempt=1, warm=not load_ms)
        )
        if load_ms is not None:
            self.write(at_ms, name, ev.ModelLoadCompleted(model="m", ms=load_ms))
        self.write(at_ms + device_ms, name, ev.JobDeviceReleased(gpu_ms=device_ms))
        if completed:
            self.write(at_ms + device_ms, name, ev.JobCompleted())

    def worker(self, at_ms: int, name: str, *devices: str) -> None:
        slots = tuple(ev.SlotInfo(index=0, device=device, kind="sim", bytes=7) for device in devices)
        self.write(at_ms, name, ev.WorkerRegistered(worker_id=name, host="h", pid=1, slots=slots))

    def fold(self, begin: int = 0, end: int = 1 << 60) -> Recorded:
        recorded = Recorded((begin, 0), (end, float("inf")))
        for entry in self.entries:
            recorded.apply(entry)
        return recorded


def test_run_and_load_are_those_of_the_last_completed_attempt() -> None:
    log = Log()
    log.job(1000, "j")
    log.attempt(2000, "j", 9000, 100, completed=False)
    log.attempt(20_000, "j", 5000, 2000)

    (arrival,) = log.fold().arrivals()

    assert (arrival.at_ms, arrival.run_ms, arrival.load_ms, arrival.user) == (0, 3000, 2000, "u")


def test_what_never_ran_takes_the_median_of_its_model_and_bucket_else_of_all() -> None:
    log = Log()
    for number, (bucket, device_ms) in enumerate([("x", 10), ("x", 30), ("x", 20), ("y", 90), ("y", 80)]):
        log.job(number, f"ran{number}", bucket=bucket)
        log.attempt(100, f"ran{number}", device_ms, None)
    log.job(10, "known", bucket="x")
    log.job(10, "unknown", model="other")

    found = {arrival.job_id: arrival.run_ms for arrival in log.fold().arrivals()}

    assert (found["known"], found["unknown"]) == (20, 30)


def test_a_job_is_in_the_range_by_its_creation_and_measured_even_when_it_ends_behind_it() -> None:
    log = Log()
    for at_ms, name in ((10, "early"), (20, "in"), (30, "gone"), (41, "late")):
        log.job(at_ms, name)
    log.write(35, "gone", ev.JobCancelled(how="queued"))
    log.attempt(50, "in", 70, None)

    assert [(one.job_id, one.run_ms) for one in log.fold(20, 40).arrivals()] == [("in", 70)]


def test_what_the_leader_was_told_holds_from_its_moment_on_and_may_be_altered_all_along() -> None:
    log = Log()
    for at_ms, lead_s, charged in ((1, 10, 8.0), (30, 20, 16.0), (50, 30, 80.0)):
        log.tell(at_ms, weights={"a": charged}, policy=ev.PolicyFacts(lead_s=lead_s), tier="enterprise")
    log.job(20, "j")

    recorded = log.fold(20, 40)

    told = [(at_ms, each.policy and each.policy.lead_s, each.weights) for at_ms, each in recorded.changes()[1:]]
    assert told == [(0, 10, {"a": 8.0}), (10, 20, {"a": 16.0}), (30, 30, {"a": 80.0})]
    assert recorded.arrivals()[0].tier == "enterprise"
    other = altered(recorded.changes(), ev.PolicyFacts(lead_s=5, tier_weights={"enterprise": 2.0}), {"a": 3.0})
    assert [each.policy and each.policy.lead_s for _, each in other] == [5] * 4
    assert [each.weights["a"] for _, each in other] == [9.0, 6.0, 6.0, 6.0]
    plain = altered(recorded.changes(), ev.PolicyFacts(tier_weights={"enterprise": 4.0}), {})
    assert [each.weights["a"] for _, each in plain] == [3.0, 4.0, 8.0, 40.0]


def started_s(log: Log, devices: int = 4) -> list[float | None]:
    """When each job starts, in seconds after the first came."""
    recorded, fleet = log.fold(), (Device(),) * devices
    scheduler = Folded(fleet, recorded.arrivals(), recorded.changes(), recorded.begin_ms())
    jobs = simulate(recorded.arrivals(), fleet, scheduler, 10 * DAY_MS)
    return [None if job.start_ms is None else job.start_ms / 1000 for job in jobs]


def three_jobs(of_ms: int = 1000, **more: Any) -> Log:
    """Jobs that come at once, a second and a half after a midnight."""
    log = Log()
    for name in ("j1", "j2", "j3"):
        log.job(DAY_MS + 1500, name, **more)
        log.attempt(DAY_MS + 9000, name, of_ms, None)
    return log


def test_a_recorded_cap_holds_until_it_was_lifted() -> None:
    log = three_jobs(4000)
    log.tell(5, concurrency=1)
    assert started_s(log) == [0, 4, 8]
    log.tell(DAY_MS + 7500, concurrency=2)
    assert started_s(log) == [0, 4, 6]
    by_user = three_jobs(4000)
    by_user.tell(5, user_concurrency=2)
    assert started_s(by_user) == [0, 0, 4]


@pytest.mark.parametrize(
    ("paused", "resumed"),
    [
        ({"paused": True}, {"paused": False}),
        ({"paused_models": ("m",)}, {"paused_models": ()}),
        ({"tenant_paused": True}, {"tenant_paused": False}),
    ],
)
def test_what_was_paused_starts_nothing_until_it_was_resumed(paused: dict[str, Any], resumed: dict[str, Any]) -> None:
    log = three_jobs()
    log.tell(5, **paused)
    assert started_s(log) == [None] * 3
    log.tell(DAY_MS + 8500, **resumed)
    assert started_s(log) == [7, 7, 7]


def test_a_recorded_budget_ends_with_the_recorded_day() -> None:
    log = three_jobs(4000)
    log.tell(5, gpu_seconds_per_day=3)

    assert started_s(log, devices=1) == [0, DAY_MS / 1000 - 1.5, 2 * DAY_MS / 1000 - 1.5]
    recorded = log.fold()
    assert run(recorded.arrivals(), Setting((Device(),), recorded.changes(), recorded.begin_ms())).never_started == 0


def test_a_recorded_external_limit_is_kept_in_any_window() -> None:
    log = three_jobs(resources={"search": 1})
    log.tell(5, resources={"search": ev.ResourceRule(rate=2, window_ms=10_000)})

    assert started_s(log) == [0, 0, 10]


def test_the_fleet_is_the_largest_of_the_range_and_a_successor_is_not_counted_twice() -> None:
    log = Log()
    log.worker(1, "gone", "d0", "d1", "d2")
    log.write(2, "gone", ev.WorkerDrained(worker_id="gone"))
    log.worker(3, "killed", "d0")
    log.worker(20, "successor", "d0")
    log.worker(22, "second", "d1")
    log.write(25, "killed", ev.WorkerLost(worker_id="killed", silent_ms=1))
    log.worker(99, "late", "d3")

    assert log.fold(10, 40).fleet == (Device(bytes=7), Device(bytes=7))


def test_more_devices_shorten_the_wait_and_the_ten_largest_tenants_are_told() -> None:
    log = Log()
    for number in range(20):
        log.job(number, f"j{number:02}", tenant=f"t{number % 12:02}")
        log.attempt(100, f"j{number:02}", 1000, None)
    recorded = log.fold()
    arrivals = recorded.arrivals()

    one, four = (run(arrivals, Setting((Device(),) * count, recorded.changes())) for count in (1, 4))

    assert one.waits["all"].p95_s > 3 * four.waits["all"].p95_s > 0
    assert sum(name.startswith("tenant ") for name in one.waits) == 10
    assert one.never_started == four.never_started == 0


def test_a_job_that_fits_nowhere_never_starts_and_does_not_keep_the_clock_going() -> None:
    log = Log()
    log.job(0, "small")
    log.write(1, "large", ev.JobCreated(tenant_id="a", model="m", timeout_ms=1, vram_bytes=9))
    log.attempt(2, "small", 1000, None)

    outcome = run(log.fold().arrivals(), Setting((Device(bytes=8),), log.fold().changes()))

    assert (outcome.never_started, outcome.use.started) == (1, 1)
