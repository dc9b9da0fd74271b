"""A pool without a store: the log as a list, the leader's turns written straight into it, workers that obey."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from contracts import events as ev
from contracts.job import JobStatus
from contracts.retry import Backoff
from contracts.wire import Entry
from services.scheduler.decisions import Decision
from services.scheduler.fold.records import Job, Offer
from services.scheduler.fold.state import PoolState
from services.scheduler.retention import Retention
from services.scheduler.turns import Observed, Rules, plan_turn

START_MS = 1_000_000
RULES = Rules(Retention(60_000, 60_000), known_for_s=60, run_grace_ms=1_000, backoff=Backoff(jitter_ratio=0))


class World:
    """The log so far and its fold. `now_ms` is the server's time; a test moves it."""

    def __init__(self) -> None:
        self.state = PoolState()
        self.entries: list[Entry] = []
        self.now_ms = START_MS
        self._seq = itertools.count()
        self._jobs = itertools.count(1)
        self._offers = itertools.count(1)
        self._turn = 0

    # -- what others write ------------------------------------------------------------------------------------

    def write(self, subject: str, *events: ev.Event, fence: int = 0) -> None:
        for event in events:
            entry = Entry(
                f"{self.now_ms}-{next(self._seq)}", event.TYPE, subject, event.to_json().encode(), fence=fence
            )
            self.entries.append(entry)
            self.state.apply(entry)

    def submit(self, tenant: str = "t_a", run_at_ms: int | None = None, **facts: object) -> str:
        job_id = f"job_{next(self._jobs):05}"
        fields: dict[str, object] = {"tenant_id": tenant, "model": "echo@1", "timeout_ms": 60_000}
        later = [] if run_at_ms is None else [ev.JobScheduled(run_at_ms=run_at_ms)]
        self.write(job_id, ev.JobCreated.model_validate(fields | facts), *later)
        return job_id

    def worker(
        self, worker_id: str = "w1", slots: int = 1, slot_bytes: int = 0, models: Sequence[str] = ("echo",),
        device: str | None = None,
    ) -> str:  # fmt: skip
        infos = tuple(
            ev.SlotInfo(index=i, device=device or f"dev-{i}", kind="sim", bytes=slot_bytes) for i in range(slots)
        )
        event = ev.WorkerRegistered(worker_id=worker_id, host="h", pid=1, slots=infos, models=tuple(models))
        self.write(worker_id, event)
        return worker_id

    def start(self, job_id: str) -> Job:
        job = self.job(job_id)
        offer = self.offer_of(job_id)
        event = ev.JobStarted(
            worker_id=offer.worker_id, offer_id=offer.id, slot=offer.slot, device="d", attempt=job.attempt + 1
        )
        self.write(job_id, event, fence=job.fence + 1)
        return job

    def running(self, tenant: str = "t_a", **facts: Any) -> str:
        """Submit a job, offer it and start it; returns its id."""
        job_id = self.submit(tenant, **facts)
        self.turn()
        self.start(job_id)
        return job_id

    def complete(self, job_id: str, gpu_ms: int = 1_000) -> None:
        job = self.job(job_id)
        events = (ev.JobDeviceReleased(gpu_ms=gpu_ms), ev.JobCompleted(attempt=job.attempt))
        self.write(job_id, *events, fence=job.fence)

    def fail(self, job_id: str, delay_ms: int | None = None, *, alone: bool = False) -> None:
        job = self.job(job_id)
        error = ev.ErrorFacts(code="child_exited", retryable=delay_ms is not None)
        again = None if delay_ms is None else self.now_ms + delay_ms
        failed = ev.JobAttemptFailed(
            error=error, attempt=job.attempt, will_retry=delay_ms is not None, next_attempt_at_ms=again,
            alone=alone or None,
        )  # fmt: skip
        end = [] if delay_ms is not None else [ev.JobFailed(error=error, attempts=job.attempt)]
        self.write(job_id, failed, *end, fence=job.fence)

    def decline(self, job_id: str, reason: str = "slot_unusable") -> None:
        offer = self.offer_of(job_id)
        self.write(job_id, ev.JobUnassigned(worker_id=offer.worker_id, offer_id=offer.id, reason=reason))

    def cancel(self, job_id: str) -> None:
        running = self.job(job_id).status is JobStatus.IN_PROGRESS
        event = ev.JobCancelRequested(by="t") if running else ev.JobCancelled(how="queued")
        self.write(job_id, event, fence=self.job(job_id).fence)

    # -- what the leader does ---------------------------------------------------------------------------------

    def turn(self, refused: Callable[[Decision], bool] = lambda decision: False, **seen: object) -> list[Decision]:
        """Plan one turn and write all of it but what is `refused`."""
        self._turn += 1
        fields: dict[str, object] = {"now_ms": self.now_ms, "turn": self._turn, "needed_from": "0-0"}
        observed = Observed(**(fields | seen))  # type: ignore[arg-type]
        made = plan_turn(self.state, RULES, observed, lambda: 0.5, lambda: f"o{next(self._offers)}")
        for decision in (decision for decision in made if not refused(decision)):
            self.write(decision.write.subject, *decision.write.events, fence=decision.write.fence)
        return made

    def configured(self, **facts: Any) -> None:
        """Copy this of the configuration in a turn."""
        self.turn(policy=ev.PolicyApplied(position="9-0", **facts))

    def turns(self, most: int = 50) -> None:
        """Make turns until one does nothing."""
        for _ in range(most):
            if not self.turn():
                return
        raise AssertionError("the turns do not come to rest")

    # -- what a test asks -------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        return self.state.jobs[job_id]

    def offer_of(self, job_id: str) -> Offer:
        return next(iter(self.job(job_id).offers.values()))

    def on_decks(self) -> list[str]:
        return [
            job_id
            for worker in self.state.workers.values()
            for slot in worker.slots.values()
            for job_id in slot.deck_offers.values()
        ]

    def types(self, subject: str) -> list[str]:
        return [entry.type for entry in self.entries if entry.subject == subject]
