"""The real scheduler in a simulation: its fold, policy and turns, fed with the events a log would hold. Pure."""

import itertools
from collections.abc import Mapping, Sequence

from contracts import events as ev
from contracts.policy import SchedulingPolicy
from contracts.retry import Backoff
from contracts.wire import Entry
from services.scheduler.fold.state import PoolState
from services.scheduler.retention import Retention
from services.scheduler.simulate.arrivals import Arrival, Ran
from services.scheduler.simulate.clocked import Offer
from services.scheduler.simulate.fleet import Device, SimSlot
from services.scheduler.turns import Observed, Rules, next_due_ms, plan_turn

BEGIN_MS = 1_000_000  # of the log; nothing in a fold is older than its first entry
_NEVER_MS = 1 << 52
_RULES = Rules(Retention(_NEVER_MS, _NEVER_MS), known_for_s=60, run_grace_ms=60_000, backoff=Backoff(jitter_ratio=0))


class Folded:
    """See the module. `weights`: of tenants inside their tier, 1 where it names none."""

    def __init__(
        self, devices: Sequence[Device], arrivals: Sequence[Arrival], policy: SchedulingPolicy,
        weights: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self.state = PoolState()
        self._entries, self._offers, self._turn = itertools.count(), itertools.count(1), 0
        tiers = {arrival.tenant_id: arrival.tier for arrival in arrivals}
        tenants = {tenant: ev.TenantRule(tier=tier) for tenant, tier in sorted(tiers.items())}
        scale = weights or {}
        charged = {tenant: policy.tier_weights[tier] * scale.get(tenant, 1.0) for tenant, tier in sorted(tiers.items())}
        applied = ev.PolicyApplied(position="1-0", weights=charged, tenants=tenants, policy=policy.facts())
        self._write("scheduler", applied, 0)
        models = tuple(sorted({arrival.model for arrival in arrivals}))
        for index, device in enumerate(devices):
            info = ev.SlotInfo(index=0, device=f"dev-{index}", kind="sim", bytes=device.bytes)
            registered = ev.WorkerRegistered(worker_id=f"w{index:04}", host="h", pid=1, slots=(info,), models=models)
            self._write(f"w{index:04}", registered, 0)

    def submit(self, arrival: Arrival, now_ms: int) -> None:
        """See Scheduler."""
        created = ev.JobCreated(
            tenant_id=arrival.tenant_id, model=arrival.model, priority=arrival.priority, timeout_ms=86_400_000,
            start_by_ms=arrival.start_by_ms, vram_bytes=arrival.bytes, bucket=arrival.bucket or None,
            user_digest=arrival.user or None,
        )  # fmt: skip
        self._write(arrival.job_id, created, now_ms)

    def started(self, job: Ran, offer: str, slot: SimSlot, now_ms: int) -> None:
        """See Scheduler."""
        event = ev.JobStarted(
            worker_id=f"w{slot.index:04}", offer_id=offer, slot=0, device=f"dev-{slot.index}", attempt=1,
            warm=not job.load_ms,
        )  # fmt: skip
        self._write(job.arrival.job_id, event, now_ms, fence=1)
        if job.load_ms:
            self._write(job.arrival.job_id, ev.ModelLoadStarted(model=job.arrival.model), now_ms, fence=1)
        if slot.device.models > 1:
            self._tell_resident(slot, now_ms)

    def loaded(self, job: Ran, slot: SimSlot, now_ms: int) -> None:
        """See Scheduler."""
        event = ev.ModelLoadCompleted(model=job.arrival.model, ms=job.load_ms)
        self._write(job.arrival.job_id, event, now_ms, fence=1)

    def ended(self, job: Ran, slot: SimSlot, device_ms: int, now_ms: int) -> None:
        """See Scheduler."""
        self._write(job.arrival.job_id, ev.JobDeviceReleased(gpu_ms=device_ms), now_ms, fence=1)
        self._write(job.arrival.job_id, ev.JobCompleted(attempt=1), now_ms, fence=1)

    def decide(self, slots: Sequence[SimSlot], now_ms: int) -> tuple[list[Offer], list[str], list[str], bool]:
        """See Scheduler: one turn of the leader, written at once."""
        self._turn += 1
        seen = Observed(now_ms=BEGIN_MS + now_ms, turn=self._turn, needed_from="0-0")
        made = plan_turn(self.state, _RULES, seen, lambda: 0.5, lambda: f"o{next(self._offers)}")
        offers, taken_back, expired = [], [], []
        for decision in made:
            for event in decision.write.events:
                self._write(decision.write.subject, event, now_ms, decision.write.fence)
                if isinstance(event, ev.JobAssigned):
                    offers.append((event.offer_id, decision.job_id, int(event.worker_id[1:])))
                elif isinstance(event, ev.JobUnassigned):
                    taken_back.append(event.offer_id)
                elif isinstance(event, ev.JobExpired):
                    expired.append(decision.job_id)
        return offers, taken_back, expired, bool(made)

    def wakes_at_ms(self, slots: Sequence[SimSlot], now_ms: int) -> int | None:
        """See Scheduler."""
        due_ms = next_due_ms(self.state, _RULES, BEGIN_MS + now_ms)
        return None if due_ms is None else due_ms - BEGIN_MS

    def _tell_resident(self, slot: SimSlot, now_ms: int) -> None:
        models = tuple(slot.resident)
        info = ev.SlotInfo(
            index=0, device=f"dev-{slot.index}", kind="sim", bytes=slot.device.bytes, models=models
        )  # fmt: skip
        worker = f"w{slot.index:04}"
        self._write(worker, ev.WorkerChanged(worker_id=worker, slots=(info,)), now_ms)

    def _write(self, subject: str, event: ev.Event, now_ms: int, fence: int = 0) -> None:
        position = f"{BEGIN_MS + now_ms}-{next(self._entries)}"
        self.state.apply(Entry(position, event.TYPE, subject, event.to_json().encode(), fence=fence))
