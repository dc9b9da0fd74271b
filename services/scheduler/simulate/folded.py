"""The real scheduler in a simulation: its fold, policy and turns, fed with the events a log would hold. Pure."""

import itertools
from collections import deque
from collections.abc import Iterable, Sequence

from contracts import events as ev
from contracts.retry import Backoff
from contracts.wire import Entry
from services.scheduler.fold.state import PoolState
from services.scheduler.retention import Retention
from services.scheduler.simulate.arrivals import Arrival, Ran
from services.scheduler.simulate.changes import Change
from services.scheduler.simulate.clocked import Offer
from services.scheduler.simulate.fleet import Device, SimSlot
from services.scheduler.simulate.tokens import Tokens
from services.scheduler.turns import Observed, Rules, next_due_ms, plan_turn

BEGIN_MS = 1_000_000  # of the log; nothing in a fold is older than its first entry
_NEVER_MS = 1 << 52
_RULES = Rules(Retention(_NEVER_MS, _NEVER_MS), known_for_s=60, run_grace_ms=60_000, backoff=Backoff(jitter_ratio=0))


class Folded:
    """See the module. `changes`: in their order; `begin_ms`: the wall time of the clock's 0, for days and budgets."""

    def __init__(
        self, devices: Sequence[Device], arrivals: Sequence[Arrival], changes: Iterable[Change],
        begin_ms: int = BEGIN_MS,
    ) -> None:  # fmt: skip
        self.state = PoolState()
        self._begin_ms, self._changes, self._tokens = begin_ms, deque(changes), Tokens()
        self._entries, self._offers, self._turn = itertools.count(), itertools.count(1), 0
        self._tell_changes(0)
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
            user_digest=arrival.user or None, resources=dict(arrival.resources) or None,
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
        evicted = () if slot.device.models > 1 else None  # those have been told at the start
        event = ev.ModelLoadCompleted(model=job.arrival.model, ms=job.load_ms, evicted=evicted)
        self._write(job.arrival.job_id, event, now_ms, fence=1)

    def ended(self, job: Ran, slot: SimSlot, device_ms: int, now_ms: int) -> None:
        """See Scheduler."""
        self._write(job.arrival.job_id, ev.JobDeviceReleased(gpu_ms=device_ms), now_ms, fence=1)
        self._write(job.arrival.job_id, ev.JobCompleted(attempt=1), now_ms, fence=1)

    def decide(self, slots: Sequence[SimSlot], now_ms: int) -> tuple[list[Offer], list[str], list[str], bool]:
        """See Scheduler: one turn of the leader, written at once."""
        self._tell_changes(now_ms)
        self._turn += 1
        granted = self._granted(now_ms)
        seen = Observed(now_ms=self._begin_ms + now_ms, turn=self._turn, needed_from="0-0", limits=granted)
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
        due_ms = next_due_ms(self.state, _RULES, self._begin_ms + now_ms)
        nexts = [None if due_ms is None else due_ms - self._begin_ms]
        nexts += [self._changes[0][0] if self._changes else None]
        nexts += [self._tokens.more_at_ms(self.state.limits.known, self.state.wanted_tokens())]
        return min((at_ms for at_ms in nexts if at_ms is not None), default=None)

    def _tell_changes(self, now_ms: int) -> None:
        while self._changes and self._changes[0][0] <= now_ms:
            self._write("scheduler", self._changes.popleft()[1], now_ms)

    def _granted(self, now_ms: int) -> list[ev.Event]:
        """Return what is given of the tokens that could be used now."""
        known, wanted = self.state.limits.known, self.state.wanted_tokens()
        given = {name: self._tokens.give(name, known[name], n, now_ms) for name, n in wanted.items()}
        return [ev.ResourceGranted(resource=name, n=n) for name, n in given.items() if n]

    def _tell_resident(self, slot: SimSlot, now_ms: int) -> None:
        models = tuple(slot.resident)
        info = ev.SlotInfo(
            index=0, device=f"dev-{slot.index}", kind="sim", bytes=slot.device.bytes, models=models
        )  # fmt: skip
        worker = f"w{slot.index:04}"
        self._write(worker, ev.WorkerChanged(worker_id=worker, slots=(info,)), now_ms)

    def _write(self, subject: str, event: ev.Event, now_ms: int, fence: int = 0) -> None:
        position = f"{self._begin_ms + now_ms}-{next(self._entries)}"
        self.state.apply(Entry(position, event.TYPE, subject, event.to_json().encode(), fence=fence))
