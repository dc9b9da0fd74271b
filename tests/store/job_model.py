"""What the function library promises, as plain Python: no positions, no JSON, no keys.

Written from architecture.md section 3 and not from the Lua, so that the two can contradict each other.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from contracts.store import Word
from contracts.store.attempts import Attempt, Offer

T = TypeVar("T")
SLOTS = 2
TERMINAL = ("completed", "failed", "cancelled", "expired")


@dataclass
class ModelWorker:
    """A worker: its counter of beats, which offer lies on which slot's deck, what lies in its work stream."""

    id: str
    beats: int = 1
    decks: dict[int, str] = field(default_factory=dict)
    work: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class KnownOffer:
    """An offer ever made, and to whom."""

    worker: str
    offer: Offer

    @property
    def id(self) -> str:
        return self.offer.offer_id


@dataclass
class ModelJob:
    """A job: its state, who may write to it, and every event it ever had."""

    id: str
    tenant: str
    body: bytes
    bytes: int
    status: str = "queued"
    fence: int = 0
    attempt: int = 0
    run: int = 1
    owner: str | None = None
    accepted: tuple[str, str] | None = None  # offer and worker of the start that was accepted
    offers: dict[str, str] = field(default_factory=dict)
    cancel: bool = False
    k: int = 0
    answer: Word | None = None  # to the last k
    traced: int = 0  # highest fence whose late write left a trace
    writes: deque[str] = field(default_factory=lambda: deque(maxlen=4))
    events: list[str] = field(default_factory=lambda: ["job.created"])

    @property
    def sequence(self) -> int:
        return len(self.events)

    @property
    def open(self) -> bool:
        return self.status not in TERMINAL

    # what ingest does

    def append(self, write_id: str, sequence: int) -> Word:
        """Judge a write without a fence; the caller applies it when it is APPLIED and the id is new."""
        if write_id in self.writes:
            return Word.APPLIED
        if sequence != self.sequence:
            return Word.CONFLICT
        self.writes.append(write_id)
        return Word.APPLIED

    def cancels(self) -> None:
        if self.status == "in_progress":
            self.events.append("job.cancel_requested")
            self.cancel = True
        else:
            self.ends("cancelled")

    def retries(self) -> None:
        self.events.append("job.retried")
        self.status, self.run, self.cancel = "queued", self.run + 1, False

    # what a worker does

    def start(self, offer: str, worker: str, fence: int) -> Word:
        if self.accepted == (offer, worker) and self.owner == worker:
            return Word.APPLIED
        if fence != self.fence + 1:
            return Word.FENCED
        if offer not in self.offers:
            return Word.REFUSED
        self.events.append("job.started")
        self.status, self.fence, self.attempt = "in_progress", fence, self.attempt + 1
        self.owner, self.accepted, self.offers = worker, (offer, worker), {}
        self.k, self.answer = 0, None
        return Word.APPLIED

    def emit(self, worker: str, fence: int, k: int, what: str, line: bytes, not_cancelled: bool) -> Word:
        if fence == self.fence and k == self.k and self.answer is not None:
            return self.answer
        if fence != self.fence or worker != self.owner:
            if self.traced < fence <= self.fence:
                self.events.append("job.event_rejected")
                self.traced = fence
            return Word.FENCED
        if k != self.k + 1:
            return Word.REFUSED
        self.k, self.answer = k, Word.CONFLICT if not_cancelled and self.cancel else Word.APPLIED
        if self.answer is Word.APPLIED:
            self.body += line
            self._emitted(what)
        return self.answer

    def _emitted(self, what: str) -> None:
        match what:
            case "progress":
                self.events.append("job.progress")
            case "milestone":
                self.events.append("latents.decoded")
            case "released":
                self.events.append("job.device_released")
            case "handed back":
                self.attempt -= 1
                self.waits("job.queued")
            case "failed, retry":
                self.waits("job.attempt_failed")
            case "failed":
                self.events.append("job.attempt_failed")
                self.ends("failed")
            case _:
                self.ends(what)

    # what the leader does; `loses_offer` is also a worker's decline

    def loses_offer(self, offer: str) -> Word:
        if offer not in self.offers:
            return Word.REFUSED
        del self.offers[offer]
        self.events.append("job.unassigned")
        return Word.APPLIED

    def gets_offer(self, offer: str, worker: str) -> None:
        self.offers[offer] = worker
        self.events.append("job.assigned")

    def loses_lease(self, final: bool) -> None:
        self.events.append("job.lease_lost")
        if self.cancel:
            self.ends("cancelled")
        elif final:
            self.events.append("job.attempt_failed")
            self.ends("failed")
        else:
            self.waits("job.attempt_failed")

    def waits(self, because: str) -> None:
        self.events.append(because)
        self.status, self.owner, self.offers = "queued", None, {}

    def ends(self, status: str) -> None:
        self.events.append(f"job.{status}")
        self.status, self.owner, self.offers = status, None, {}


def _pick(items: Sequence[T], i: int) -> T | None:
    return items[i % len(items)] if items else None


@dataclass
class Model:
    """Everything: jobs, ids that are no longer jobs, workers, and all that anybody may still hold on to."""

    jobs: dict[str, ModelJob] = field(default_factory=dict)
    forgotten: dict[str, ModelJob] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    workers: dict[str, ModelWorker] = field(default_factory=dict)
    registered: list[str] = field(default_factory=list)
    offers: list[KnownOffer] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    minted: int = 0

    def mint(self, prefix: str) -> str:
        self.minted += 1
        return f"{prefix}{self.minted:04d}"

    def job_at(self, i: int, status: str | None = None) -> ModelJob | None:
        return _pick([job for job in self.jobs.values() if status in (None, job.status)], i)

    def worker_at(self, i: int) -> str:
        """Return a worker that lives more often than one that is gone or never was."""
        gone = dict.fromkeys(known.worker for known in self.offers if known.worker not in self.workers)
        return _pick([*self.workers, *self.workers, *gone, "wrk_never"], i) or ""

    def free_deck_at(self, i: int) -> tuple[str, int] | None:
        workers = self.workers.values()
        return _pick([(one.id, slot) for one in workers for slot in range(SLOTS) if slot not in one.decks], i)

    def offer_at(self, i: int) -> KnownOffer | None:
        """Return an offer that stands, or in one of four cases any that was ever made."""
        standing = [known for known in self.offers if self._stands(known)]
        return _pick(standing, i // 4) if standing and i % 4 else _pick(self.offers, i // 4)

    def attempt_at(self, i: int) -> Attempt | None:
        """Return an attempt that runs; at times one whose worker runs the job anew, or any there ever was."""
        running = [attempt for attempt in self.attempts if self.holds(attempt)]
        superseded = [attempt for attempt in self.attempts if self._superseded(attempt)]
        wanted = {0: self.attempts, 1: superseded}.get(i % 8, running)
        return _pick(wanted or self.attempts, i // 8)

    def holds(self, attempt: Attempt) -> bool:
        job = self.jobs.get(attempt.job_id)
        return job is not None and (job.owner, job.fence) == (attempt.worker_id, attempt.fence)

    def _superseded(self, attempt: Attempt) -> bool:
        job = self.jobs.get(attempt.job_id)
        return job is not None and job.owner == attempt.worker_id and job.fence > attempt.fence

    def orphan_at(self, i: int) -> ModelJob | None:
        """Return a job whose worker is gone."""
        return _pick([job for job in self.jobs.values() if job.owner and job.owner not in self.workers], i)

    def _stands(self, known: KnownOffer) -> bool:
        return known.offer.job_id in self.jobs and known.id in self.jobs[known.offer.job_id].offers

    def clear_deck(self, known: KnownOffer) -> None:
        decks = self.workers[known.worker].decks if known.worker in self.workers else {}
        if decks.get(known.offer.slot) == known.id:
            del decks[known.offer.slot]

    def standing(self, job: ModelJob) -> list[KnownOffer]:
        return [known for known in self.offers if known.id in job.offers]

    def take_back(self, offers: Sequence[KnownOffer]) -> None:
        """Clear the decks of these offers and tell their workers."""
        for known in offers:
            self.clear_deck(known)
            if known.worker in self.workers:
                self.workers[known.worker].work.append(("withdraw", known.id))

    def forget(self, job: ModelJob) -> None:
        job.events.append("job.forgotten")
        self.forgotten[job.id] = self.jobs.pop(job.id)
