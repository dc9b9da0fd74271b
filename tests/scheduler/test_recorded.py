"""What a simulation takes from a log, and what it makes of it."""

from contracts import events as ev
from contracts.wire import Entry
from services.scheduler.simulate.compared import Setting, run
from services.scheduler.simulate.fleet import Device
from services.scheduler.simulate.recorded import Recorded


class Log:
    """Entries as a leader would have written them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def write(self, at_ms: int, subject: str, event: ev.Event) -> None:
        position = f"{at_ms}-{len(self.entries)}"
        self.entries.append(Entry(position, event.TYPE, subject, event.to_json().encode()))

    def job(self, at_ms: int, name: str, tenant: str = "a", model: str = "m", bucket: str | None = None) -> None:
        created = ev.JobCreated(tenant_id=tenant, model=model, timeout_ms=1, bucket=bucket, user_digest="u")
        self.write(at_ms, name, created)

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


def test_policy_tiers_and_weights_are_those_in_force_at_the_end_of_the_range() -> None:
    log = Log()
    log.job(20, "j")
    for at_ms, lead_s, charged in ((1, 10, 8.0), (30, 20, 16.0), (50, 30, 80.0)):
        log.write(at_ms, "scheduler", ev.PolicyApplied(
            position="1-0", weights={"a": charged}, tenants={"a": ev.TenantRule(tier="enterprise")},
            policy=ev.PolicyFacts(lead_s=lead_s),
        ))  # fmt: skip

    recorded = log.fold(20, 40)

    assert (recorded.policy.lead_s, recorded.weights()) == (20, {"a": 2.0})
    assert recorded.arrivals()[0].tier == "enterprise"


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
    arrivals, policy = recorded.arrivals(), recorded.policy

    one, four = (run(arrivals, Setting((Device(),) * count, policy, {})) for count in (1, 4))

    assert one.waits["all"].p95_s > 3 * four.waits["all"].p95_s > 0
    assert sum(name.startswith("tenant ") for name in one.waits) == 10
    assert one.never_started == four.never_started == 0


def test_a_job_that_fits_nowhere_never_starts_and_does_not_keep_the_clock_going() -> None:
    log = Log()
    log.job(0, "small")
    log.write(1, "large", ev.JobCreated(tenant_id="a", model="m", timeout_ms=1, vram_bytes=9))
    log.attempt(2, "small", 1000, None)

    outcome = run(log.fold().arrivals(), Setting((Device(bytes=8),), log.fold().policy, {}))

    assert (outcome.never_started, outcome.use.started) == (1, 1)
