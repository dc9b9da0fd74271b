"""What workers do to the store, also late, twice or with old knowledge, beside what the model says of it."""

from dataclasses import replace
from typing import Any

from contracts import events as ev
from contracts.store import Word, keys
from contracts.store.attempts import Attempt
from tests.store.comparison import POOL
from tests.store.job_model import KnownOffer, ModelWorker
from tests.store.side_by_side import Chance, SideBySide

LINE = b'{"log":"x"}\n'
WHAT = ("progress", "milestone", "released", "handed back", "failed, retry", "failed", "completed", "cancelled")


class Workers:
    """See the module."""

    def __init__(self, both: SideBySide) -> None:
        self.both = both

    def a_worker_registers(self, chance: Chance) -> None:
        if len(self.both.model.workers) < 2:
            worker = self.both.model.mint("wrk_")
            event = ev.WorkerRegistered(worker_id=worker, host="h", pid=1, slots=())
            assert self.both.call(chance.lost, lambda: self.both.store.attempts.register(POOL, event, {"host": "h"}))
            self.both.model.workers[worker] = ModelWorker(worker)
            self.both.model.registered.append(worker)

    def a_worker_beats(self, chance: Chance) -> None:
        worker_id = self.both.model.worker_at(chance.i)
        held = [(a.job_id, a.fence) for a in self.both.model.attempts if a.worker_id == worker_id][-4:]
        reply = self.both.call(chance.lost, lambda: self.both.store.attempts.heartbeat(POOL, worker_id, held))
        worker = self.both.model.workers.get(worker_id)
        if worker is None:
            assert reply.word is Word.GONE
            return
        assert worker.beats < reply.counter <= worker.beats + 1 + chance.lost  # a beat that is repeated is two beats
        worker.beats = reply.counter
        assert reply.held == tuple(self._held(worker_id, job_id, fence) for job_id, fence in held)

    def _held(self, worker_id: str, job_id: str, fence: int) -> str:
        job = self.both.model.jobs.get(job_id)
        if job is None or job.owner != worker_id or job.fence != fence:
            return "0"
        return "c" if job.cancel else "1"

    def a_worker_starts(self, chance: Chance) -> None:
        """Any offer ever made: standing, withdrawn, started before, of a job that is gone."""
        known = self.both.model.offer_at(chance.i)
        if known is not None:
            attempt, event = _starting(known)
            done = self._entries_of(known)
            reply = self.both.call(chance.lost, lambda: self.both.store.attempts.start(attempt, event, done))
            self._after_start(known, attempt, reply.word, reply.body, done)

    def _entries_of(self, known: KnownOffer) -> list[str]:
        stream = self.both.direct.xrange(keys.work(POOL, known.worker))
        return [position for position, entry in stream if entry["kind"] == "offer" and f'"{known.id}"' in entry["d"]]

    def _after_start(self, known: KnownOffer, attempt: Attempt, word: Word, body: bytes, done: list[str]) -> None:
        job = self.both.model.jobs.get(attempt.job_id)
        if job is None:
            assert word is Word.GONE
            return
        before = job.sequence
        assert word is job.start(known.id, known.worker, attempt.fence)
        assert body == (job.body if word is Word.APPLIED else b"")
        if job.sequence > before:
            self.both.model.attempts.append(attempt)
            self.both.model.clear_deck(known)
            if done:
                self.both.model.workers[known.worker].work.remove(("offer", known.id))

    def a_worker_writes(self, chance: Chance) -> None:
        """For any attempt ever started: with the next k, the last one, an older one, or one that comes too early."""
        attempt = self.both.model.attempt_at(chance.i)
        if attempt is None:
            return
        what, job, k = chance.what, self.both.model.jobs.get(attempt.job_id), attempt.k + chance.step
        events, options = _emission(what, 1 if job is None else job.attempt)
        line, not_cancelled = options.get("line", b""), options.get("not_cancelled", False)
        sent = replace(attempt, k=k)

        reply = self.both.call(chance.lost, lambda: self.both.store.attempts.repeat(sent, events, **options))

        attempt.k = k if chance.step == 1 else attempt.k
        if job is None:
            assert reply.word is Word.GONE
            return
        before = job.sequence
        assert reply.word is job.emit(attempt.worker_id, attempt.fence, k, what, line, not_cancelled)
        if reply.word is Word.APPLIED and job.sequence > before:
            assert reply.position == self.both.last_position(job.id)

    def a_slot_goes_from_one_job_to_the_next(self, chance: Chance) -> None:
        """The two answers stand each for itself: a fenced A does not keep B from starting, nor the other way."""
        ending, known = self.both.model.attempt_at(chance.i), self.both.model.offer_at(chance.j)
        if ending is None or known is None or known.worker != ending.worker_id:
            return
        if known.offer.job_id == ending.job_id:
            return
        starting, event = _starting(known)
        ending.k += 1
        released = ev.JobDeviceReleased(gpu_ms=1)
        first, second = self.both.call(
            chance.lost,
            lambda: self.both.store.attempts.release_and_start(ending, released, starting, event, repeat=True),
        )
        job = self.both.model.jobs.get(ending.job_id)
        args = (ending.worker_id, ending.fence, ending.k, "released", b"", False)
        assert first.word is (Word.GONE if job is None else job.emit(*args))
        self._after_start(known, starting, second.word, second.body, [])

    def a_worker_declines(self, chance: Chance) -> None:
        known = self.both.model.offer_at(chance.i)
        if known is None:
            return
        reply = self.both.call(
            chance.lost, lambda: self.both.store.attempts.decline(POOL, known.worker, known.offer, "drain")
        )
        job = self.both.model.jobs.get(known.offer.job_id)
        word = Word.GONE if job is None else job.loses_offer(known.id)
        # A repeat finds the offer gone; the worker wanted nothing else.
        assert reply.word is word or (chance.lost and reply.word is Word.REFUSED)
        if word is Word.APPLIED:
            self.both.model.clear_deck(known)


def _starting(known: KnownOffer) -> tuple[Attempt, ev.JobStarted]:
    offer, number = known.offer, known.offer.attempt + 1
    event = ev.JobStarted(
        worker_id=known.worker, offer_id=known.id, slot=offer.slot, device="cpu", attempt=number
    )  # fmt: skip
    return Attempt(POOL, known.worker, offer, offer.fence + 1, number), event


def _emission(what: str, attempt: int) -> tuple[list[ev.Event], dict[str, Any]]:
    """Return what a worker sends to say this; an end that is no success must not pass over a cancel."""
    error = ev.ErrorFacts(code="internal")
    match what:
        case "progress":  # a phase is the author's text, and may look like anything
            return [ev.JobProgress(progress=50, step=1, total_steps=2, phase="@home")], {}
        case "milestone":
            return [ev.LatentsDecoded(step=1)], {"line": LINE}
        case "released":
            return [ev.JobDeviceReleased(gpu_ms=5)], {}
        case "handed back":
            return [ev.JobQueued(reason="handed_back", attempt=attempt - 1)], {"not_cancelled": True}
        case "failed, retry":
            failed = ev.JobAttemptFailed(error=error, attempt=attempt, will_retry=True, next_attempt_at_ms=1)
            return [failed], {"not_cancelled": True}
        case "failed":
            failed = ev.JobAttemptFailed(error=error, attempt=attempt, will_retry=False)
            ended = ev.JobFailed(error=error, attempts=attempt, dead_lettered=True)
            return [failed, ended], {"closes": True, "not_cancelled": True}
        case "completed":
            return [ev.JobCompleted(attempt=attempt)], {"closes": True, "line": LINE}
        case _:
            return [ev.JobCancelled(how="cooperative")], {"closes": True}
