"""The function library on a real server beside a plain model of it, with replies lost at random.

Rules are what ingest, the leader and workers do, each of them also late, twice or with old knowledge. After every step
the words, job hashes, bodies, lists, counters, decks, work streams and the log must be what the model says; the log
must fold to the hash, its back pointers must have no gap, and every run must have one terminal event.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from contracts import events as ev
from contracts.errors import StoreUnavailable
from contracts.store import Store, Word, keys
from contracts.store.attempts import Attempt
from contracts.store.jobs import Limits
from contracts.store.leadership import Turn, build_turn
from contracts.store.write import JobGuard, WorkEntry, Write
from tests.servers import Server
from tests.store.comparison import POOL, TENANTS, compare_counters, compare_jobs, compare_whole_log, compare_workers
from tests.store.decisions import KINDS, decide, taking_back
from tests.store.job_model import KnownOffer, Model, ModelJob, ModelWorker
from tests.store.lossy import LossyProxy

LINE = b'{"log":"x"}\n'
WHAT = ("progress", "milestone", "released", "handed back", "failed, retry", "failed", "completed", "cancelled")
LEASE_MS = 600_000

ACTIONS = (
    *["admit_a_job"] * 4,
    *["admit_an_id_again"] * 2,
    "refuse_an_id",
    *["ingest_cancels_or_retries"] * 3,
    "write_about_a_job_that_is_not_there",
    *["a_worker_registers"] * 2,
    "a_worker_beats",
    *["a_worker_starts"] * 6,
    *["a_worker_writes"] * 10,
    *["a_slot_goes_from_one_job_to_the_next"] * 2,
    "a_worker_declines",
    *["the_leader_takes_a_turn"] * 8,
    "the_turn_arrives_again",
    "a_turn_out_of_order_is_refused",
    "another_leader_takes_over",
)


@dataclass(frozen=True)
class Chance:
    """What Hypothesis draws for one step."""

    i: int = 0
    j: int = 0
    stale: int = 0  # by how many events the writer's knowledge is old
    lost: int = 0  # replies that do not arrive; the client repeats once by itself, then its caller has to
    what: str = ""  # a worker writes
    step: int = 1  # of k: the next one, the last one again, an older one, one that comes too early
    decisions: Sequence[tuple[str, int, int, int]] = ()  # of a turn


index, stale = st.integers(0, 255), st.sampled_from([0, 0, 0, 0, 0, 0, 1])
chances = st.builds(
    Chance,
    i=index,
    j=index,
    stale=stale,
    lost=st.sampled_from([0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2]),
    what=st.sampled_from(WHAT),
    step=st.sampled_from([1, 1, 1, 1, 0, -1, 2]),
    decisions=st.lists(st.tuples(st.sampled_from(KINDS), index, index, stale), min_size=1, max_size=4),
)


class Library(RuleBasedStateMachine):
    """The rules. `server` is set by the test."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.direct = redis.Redis.from_url(self.server.url, decode_responses=True)
        self.direct.flushall()
        self.proxy = LossyProxy(self.server.socket)
        self.model = Model()
        self.tokens, self.number = 0, 0
        self.writes: list[tuple[str, str]] = []  # job and write id
        self.sent: tuple[Turn, list[Word]] | None = None

    @initialize()
    def open(self) -> None:
        self.loop.run(self._open())
        self.call(0, lambda: self.store.leadership.lead(POOL, self.token, LEASE_MS))
        for number in range(4):
            self.admit_a_job(Chance(i=number))
            self.a_worker_registers(Chance())

    # One rule, since Hypothesis leaves out some rules of each run: without admissions, turns or starts nothing happens.
    @rule(action=st.sampled_from(ACTIONS), chance=chances)
    def something_happens(self, action: str, chance: Chance) -> None:
        getattr(self, action)(chance)

    async def _open(self) -> None:
        await self.proxy.open()
        self.store = Store(self.proxy.url, retries=1)
        await self.store.directory.open()
        await self.store.open_pool(POOL)

    def teardown(self) -> None:
        try:
            compare_whole_log(self.direct, self.model)
        finally:
            self.loop.run(self._close())
            self.loop.close()
            self.direct.close()

    async def _close(self) -> None:
        await self.store.aclose()
        await self.proxy.close()

    @property
    def token(self) -> str:
        return f"token{self.tokens}"

    def call(self, lost: int, make: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call whose first `lost` replies do not arrive; repeat it unchanged, as its caller has to."""

        async def until_answered() -> Any:
            self.proxy.drop = lost
            try:
                return await make()
            except StoreUnavailable:
                self.proxy.drop = 0
                return await make()
            finally:
                self.proxy.drop = 0

        return self.loop.run(until_answered())

    # -- ingest

    def admit_a_job(self, chance: Chance) -> None:
        tenant = TENANTS[chance.i % len(TENANTS)]
        job_id = self.model.mint("job_")
        body = f'{{"prompt":"{job_id}"}}\n'.encode()
        assert self._admit(job_id, tenant, body, chance.lost) is Word.APPLIED
        self.model.jobs[job_id] = ModelJob(job_id, tenant, body, len(body))

    def admit_an_id_again(self, chance: Chance) -> None:
        """A job that runs, has ended, was forgotten; an id that was refused."""
        minted = [*self.model.jobs, *self.model.forgotten, *sorted(self.model.refused)]
        if minted:
            job_id = minted[chance.i % len(minted)]
            word = self._admit(job_id, TENANTS[0], b"another body", chance.lost)
            assert word is (Word.GONE if job_id in self.model.refused else Word.APPLIED)

    def _admit(self, job_id: str, tenant: str, body: bytes, lost: int) -> Word:
        created = ev.JobCreated(
            tenant_id=tenant, model="echo@1", timeout_ms=1000, body_bytes=len(body), start_by_ms=60_000
        )
        write = Write(job_id, (created,))
        return Word(self.call(lost, lambda: self.store.jobs.admit(POOL, write, body, tenant, Limits())).word)

    def refuse_an_id(self, chance: Chance) -> None:
        job = self.model.job_at(chance.i)
        job_id = job.id if job is not None and chance.j % 2 else self.model.mint("job_")
        reply = self.call(chance.lost, lambda: self.store.jobs.refuse(POOL, job_id, 60))
        assert reply.word is (Word.CONFLICT if job_id in self.model.jobs else Word.APPLIED)
        if job_id not in self.model.jobs:
            self.model.refused.add(job_id)

    def ingest_cancels_or_retries(self, chance: Chance) -> None:
        """From a state that may be old, with a write id that may have been used before."""
        job = self.model.job_at(chance.i // 2, "in_progress" if chance.i % 2 else None)
        if job is None or job.status == "completed":
            return
        write_id = self._write_id(job.id, chance.j)
        known, sequence = write_id in job.writes, job.sequence - chance.stale
        write = replace(self._cancel(job) if job.open else self._retry(job), guard=JobGuard(sequence=sequence))

        reply = self.call(chance.lost, lambda: self.store.jobs.append(POOL, write, write_id))

        assert reply.word is job.append(write_id, sequence)
        if reply.word is Word.APPLIED and not known:
            self._after_append(job)
            assert reply.position == self._last_position(job.id)

    def _after_append(self, job: ModelJob) -> None:
        if not job.open:
            job.retries()
            return
        self.model.take_back(self.model.standing(job))
        if job.owner in self.model.workers:
            self.model.workers[job.owner].work.append(("cancel", job.id))
        job.cancels()

    def _cancel(self, job: ModelJob) -> Write:
        if job.owner is None:
            ended = ev.JobCancelled(how="queued", by="a")
            return Write(job.id, (ended,), closes_for=job.tenant, **taking_back(self.model, job))
        work = (WorkEntry(job.owner, "cancel", {"jobId": job.id, "fence": job.fence}),)
        return Write(job.id, (ev.JobCancelRequested(by="a"),), work=work)

    def _retry(self, job: ModelJob) -> Write:
        event = ev.JobRetried(by="a", from_status=job.status, run=job.run + 1, max_attempts=job.attempt + 3)
        return Write(job.id, (event,), opens_for=job.tenant)

    def _write_id(self, job_id: str, j: int) -> str:
        used = [write for job, write in self.writes if job == job_id]
        if used and j % 4 == 0:
            return used[j // 4 % len(used)]
        self.writes.append((job_id, self.model.mint("write")))
        return self.writes[-1][1]

    def write_about_a_job_that_is_not_there(self, chance: Chance) -> None:
        gone = [*self.model.forgotten, *sorted(self.model.refused), "job_never"]
        guard = JobGuard(sequence=1) if chance.j % 2 else None
        write = Write(gone[chance.i % len(gone)], (ev.JobCancelRequested(by="a"),), guard=guard)
        assert self.call(0, lambda: self.store.jobs.append(POOL, write, "w")).word is Word.GONE

    # -- workers

    def a_worker_registers(self, chance: Chance) -> None:
        if len(self.model.workers) < 2:
            worker = self.model.mint("wrk_")
            event = ev.WorkerRegistered(worker_id=worker, host="h", pid=1, slots=())
            assert self.call(chance.lost, lambda: self.store.attempts.register(POOL, event, {"host": "h"}))
            self.model.workers[worker] = ModelWorker(worker)
            self.model.registered.append(worker)

    def a_worker_beats(self, chance: Chance) -> None:
        worker_id = self.model.worker_at(chance.i)
        held = [(a.job_id, a.fence) for a in self.model.attempts if a.worker_id == worker_id][-4:]
        reply = self.call(chance.lost, lambda: self.store.attempts.heartbeat(POOL, worker_id, held))
        worker = self.model.workers.get(worker_id)
        if worker is None:
            assert reply.word is Word.GONE
            return
        assert worker.beats < reply.counter <= worker.beats + 1 + chance.lost  # a beat that is repeated is two beats
        worker.beats = reply.counter
        assert reply.held == tuple(self._held(worker_id, job_id, fence) for job_id, fence in held)

    def _held(self, worker_id: str, job_id: str, fence: int) -> str:
        job = self.model.jobs.get(job_id)
        if job is None or job.owner != worker_id or job.fence != fence:
            return "0"
        return "c" if job.cancel else "1"

    def a_worker_starts(self, chance: Chance) -> None:
        """Any offer ever made: standing, withdrawn, started before, of a job that is gone."""
        known = self.model.offer_at(chance.i)
        if known is not None:
            attempt, event = _starting(known)
            done = self._entries_of(known)
            reply = self.call(chance.lost, lambda: self.store.attempts.start(attempt, event, done))
            self._after_start(known, attempt, reply.word, reply.body, done)

    def _entries_of(self, known: KnownOffer) -> list[str]:
        stream = self.direct.xrange(keys.work(POOL, known.worker))
        return [position for position, entry in stream if entry["kind"] == "offer" and f'"{known.id}"' in entry["d"]]

    def _after_start(self, known: KnownOffer, attempt: Attempt, word: Word, body: bytes, done: list[str]) -> None:
        job = self.model.jobs.get(attempt.job_id)
        if job is None:
            assert word is Word.GONE
            return
        before = job.sequence
        assert word is job.start(known.id, known.worker, attempt.fence)
        assert body == (job.body if word is Word.APPLIED else b"")
        if job.sequence > before:
            self.model.attempts.append(attempt)
            self.model.clear_deck(known)
            if done:
                self.model.workers[known.worker].work.remove(("offer", known.id))

    def a_worker_writes(self, chance: Chance) -> None:
        """For any attempt ever started: with the next k, the last one, an older one, or one that comes too early."""
        attempt = self.model.attempt_at(chance.i)
        if attempt is None:
            return
        what, job, k = chance.what, self.model.jobs.get(attempt.job_id), attempt.k + chance.step
        events, options = _emission(what, 1 if job is None else job.attempt)
        line, not_cancelled = options.get("line", b""), options.get("not_cancelled", False)
        sent = replace(attempt, k=k)

        reply = self.call(chance.lost, lambda: self.store.attempts.repeat(sent, events, **options))

        attempt.k = k if chance.step == 1 else attempt.k
        if job is None:
            assert reply.word is Word.GONE
            return
        before = job.sequence
        assert reply.word is job.emit(attempt.worker_id, attempt.fence, k, what, line, not_cancelled)
        if reply.word is Word.APPLIED and job.sequence > before:
            assert reply.position == self._last_position(job.id)

    def a_slot_goes_from_one_job_to_the_next(self, chance: Chance) -> None:
        """The two answers stand each for itself: a fenced A does not keep B from starting, nor the other way."""
        ending, known = self.model.attempt_at(chance.i), self.model.offer_at(chance.j)
        if ending is None or known is None or known.worker != ending.worker_id:
            return
        if known.offer.job_id == ending.job_id:
            return
        starting, event = _starting(known)
        ending.k += 1
        released = ev.JobDeviceReleased(gpu_ms=1)
        first, second = self.call(
            chance.lost,
            lambda: self.store.attempts.release_and_start(ending, released, starting, event, repeat=True),
        )
        job = self.model.jobs.get(ending.job_id)
        args = (ending.worker_id, ending.fence, ending.k, "released", b"", False)
        assert first.word is (Word.GONE if job is None else job.emit(*args))
        self._after_start(known, starting, second.word, second.body, [])

    def a_worker_declines(self, chance: Chance) -> None:
        known = self.model.offer_at(chance.i)
        if known is None:
            return
        reply = self.call(chance.lost, lambda: self.store.attempts.decline(POOL, known.worker, known.offer, "drain"))
        job = self.model.jobs.get(known.offer.job_id)
        word = Word.GONE if job is None else job.loses_offer(known.id)
        # A repeat finds the offer gone; the worker wanted nothing else.
        assert reply.word is word or (chance.lost and reply.word is Word.REFUSED)
        if word is Word.APPLIED:
            self.model.clear_deck(known)

    # -- the leader

    def the_leader_takes_a_turn(self, chance: Chance) -> None:
        """Each decision is judged after what the ones before it wrote, and a refused one stops no other."""
        made = [decision for one in chance.decisions if (decision := decide(self.model, *one)) is not None]
        self.number += 1
        turn = self._turn(self.token, self.number, [decision.write for decision in made])
        reply = self.call(chance.lost, lambda: self.store.leadership.turn(turn))
        words = [decision.judge() for decision in made]
        assert (reply.word, [verdict.word for verdict in reply.verdicts]) == (Word.APPLIED, words)
        self.sent = turn, words

    def the_turn_arrives_again(self, chance: Chance) -> None:
        if self.sent is None:
            return
        turn, words = self.sent
        reply = self.call(chance.lost, lambda: self.store.leadership.turn(turn))
        if turn.args[1] != self.token:
            assert reply.word is Word.FENCED
        else:
            assert (reply.word, [verdict.word for verdict in reply.verdicts]) == (Word.APPLIED, words)

    def a_turn_out_of_order_is_refused(self, chance: Chance) -> None:
        decision, off = decide(self.model, "offer", chance.i, chance.i, 0), (-2, -1, 1, 2)[chance.j % 4]
        turn = self._turn(self.token, self.number + 1 + off, [] if decision is None else [decision.write])
        reply = self.call(0, lambda: self.store.leadership.turn(turn))
        is_the_last_one = off == -1 and self.number > 0
        assert reply.word is (Word.APPLIED if is_the_last_one else Word.REFUSED)

    def another_leader_takes_over(self, chance: Chance) -> None:
        former, late = self.token, decide(self.model, "offer", chance.i, chance.i, 0)
        assert not self.call(0, lambda: self.store.leadership.lead(POOL, "impatient", LEASE_MS))[0]
        self.call(chance.lost, lambda: self.store.leadership.resign(POOL, former))
        self.tokens, self.number = self.tokens + 1, 0
        taken, _, turn = self.call(chance.lost, lambda: self.store.leadership.lead(POOL, self.token, LEASE_MS))
        assert (taken, turn) == (True, 0)
        writes = [] if late is None else [late.write]
        for token, number, word in ((former, 1, Word.FENCED), (self.token, 0, Word.REFUSED)):
            never = self._turn(token, number, writes)
            assert self.call(0, lambda turn=never: self.store.leadership.turn(turn)).word is word

    def _turn(self, token: str, number: int, writes: list[Write]) -> Turn:
        return build_turn(POOL, token, number, LEASE_MS, writes, cursor="0-0", entries_read=0)

    # -- what must hold after every step

    def _last_position(self, job_id: str) -> str:
        return str(self.direct.hget(keys.job(POOL, job_id), "p"))

    @invariant()
    def the_store_is_what_the_model_says(self) -> None:
        if self.model.minted:
            self.loop.run(compare_jobs(self.store, self.model))
            compare_counters(self.direct, self.model)
            compare_workers(self.direct, [*self.model.workers.values()])


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


@pytest.mark.timeout(600)
def test_the_library_keeps_its_promises_when_replies_are_lost(any_server: Server) -> None:
    class OnThisServer(Library):
        server = any_server

    run_state_machine_as_test(
        OnThisServer,
        settings=settings(
            max_examples=25,
            stateful_step_count=50,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
