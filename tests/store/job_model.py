"""What the function library promises of jobs, as plain Python: no positions, no JSON, no keys.

Written from architecture.md, not from the Lua, so that the two can contradict each other.
"""

from collections import deque
from dataclasses import dataclass, field

from contracts.store import Word

TERMINAL = {"completed", "failed", "cancelled", "expired"}


@dataclass
class ModelWorker:
    """A worker's hash: counter of beats, whether it takes offers, which offer lies on which slot's deck."""

    id: str
    beats: int = 1
    decks: dict[int, str] = field(default_factory=dict)


@dataclass
class ModelJob:
    """A job: its state, who may write to it, and every event it ever had."""

    id: str
    tenant: str
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
    answers: dict[int, Word] = field(default_factory=dict)  # to the last k only
    traced: int = 0  # highest fence whose late write left a trace
    writes: deque[str] = field(default_factory=lambda: deque(maxlen=4))
    events: list[str] = field(default_factory=lambda: ["job.created"])

    @property
    def sequence(self) -> int:
        return len(self.events)

    @property
    def open(self) -> bool:
        return self.status not in TERMINAL

    # -- what ingest does

    def append(self, write_id: str, sequence: int) -> Word:
        """Judge a write without a fence; the caller applies it when APPLIED and `write_id` is new."""
        if write_id in self.writes:
            return Word.APPLIED
        if sequence != self.sequence:
            return Word.CONFLICT
        self.writes.append(write_id)
        return Word.APPLIED

    def cancelled(self) -> None:
        if self.status == "in_progress":
            self.events.append("job.cancel_requested")
            self.cancel = True
        else:
            self._ends("cancelled")

    def retried(self) -> None:
        self.events.append("job.retried")
        self.status, self.run, self.cancel, self.owner, self.accepted = "queued", self.run + 1, False, None, None

    # -- what a worker does

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
        self.k, self.answers = 0, {}
        return Word.APPLIED

    def emit(self, worker: str, fence: int, k: int, what: str) -> Word:
        if fence == self.fence and k in self.answers:
            return self.answers[k]
        if fence != self.fence or worker != self.owner:
            if self.traced < fence <= self.fence:
                self.events.append("job.event_rejected")
                self.traced = fence
            return Word.FENCED
        if k != self.k + 1:
            return Word.REFUSED
        word = Word.CONFLICT if what == "completed" and self.cancel else Word.APPLIED
        self.k, self.answers = k, {k: word}
        if word is Word.APPLIED:
            self._emitted(what)
        return word

    def _emitted(self, what: str) -> None:
        match what:
            case "progress":
                self.events.append("job.progress")
            case "milestone":
                self.events.append("latents.decoded")
            case "released":
                self.events.append("job.device_released")
            case "handed back":
                self.events.append("job.queued")
                self.attempt -= 1
                self._waits()
            case "failed, retry":
                self.events.append("job.attempt_failed")
                self._waits()
            case "failed":
                self.events.append("job.attempt_failed")
                self._ends("failed")
            case "completed" | "cancelled":
                self._ends(what)

    def decline(self, offer: str) -> Word:
        if offer not in self.offers:
            return Word.REFUSED
        del self.offers[offer]
        self.events.append("job.unassigned")
        return Word.APPLIED

    # -- what the leader does

    def offer(self, offer: str, worker: str) -> None:
        self.offers[offer] = worker
        self.events.append("job.assigned")

    def expires(self) -> None:
        self._ends("expired")

    def due(self) -> None:
        self.events.append("job.queued")
        self._waits()

    def lease_lost(self, final: bool) -> None:
        self.events.append("job.lease_lost")
        if self.cancel:
            self._ends("cancelled")
            return
        self.events.append("job.attempt_failed")
        if final:
            self._ends("failed")
        else:
            self._waits()

    def _waits(self) -> None:
        self.status, self.owner, self.accepted, self.offers = "queued", None, None, {}

    def _ends(self, status: str) -> None:
        self.events.append(f"job.{status}")
        self.status, self.owner, self.offers = status, None, {}
