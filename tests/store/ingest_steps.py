"""What ingest does to the store, also late, twice or with old knowledge, beside what the model says of it."""

from contracts import events as ev
from contracts.store import Word
from contracts.store.jobs import Limits
from contracts.store.write import JobGuard, WorkEntry, Write
from tests.store.comparison import POOL, TENANTS
from tests.store.decisions import taking_back
from tests.store.job_model import ModelJob
from tests.store.side_by_side import Chance, SideBySide


class Ingest:
    """See the module."""

    def __init__(self, both: SideBySide) -> None:
        self.both = both
        self._writes: list[tuple[str, str]] = []  # job and write id

    def admit_a_job(self, chance: Chance) -> None:
        tenant = TENANTS[chance.i % len(TENANTS)]
        job_id = self.both.model.mint("job_")
        body = f'{{"prompt":"{job_id}"}}\n'.encode()
        assert self._admit(job_id, tenant, body, chance.lost) is Word.APPLIED
        self.both.model.jobs[job_id] = ModelJob(job_id, tenant, body, len(body))

    def admit_an_id_again(self, chance: Chance) -> None:
        """A job that runs, has ended, was forgotten; an id that was refused."""
        minted = [*self.both.model.jobs, *self.both.model.forgotten, *sorted(self.both.model.refused)]
        if minted:
            job_id = minted[chance.i % len(minted)]
            word = self._admit(job_id, TENANTS[0], b"another body", chance.lost)
            assert word is (Word.GONE if job_id in self.both.model.refused else Word.APPLIED)

    def _admit(self, job_id: str, tenant: str, body: bytes, lost: int) -> Word:
        created = ev.JobCreated(
            tenant_id=tenant, model="echo@1", timeout_ms=1000, body_bytes=len(body), start_by_ms=60_000
        )
        write = Write(job_id, (created,))
        return Word(self.both.call(lost, lambda: self.both.store.jobs.admit(POOL, write, body, tenant, Limits())).word)

    def refuse_an_id(self, chance: Chance) -> None:
        job = self.both.model.job_at(chance.i)
        job_id = job.id if job is not None and chance.j % 2 else self.both.model.mint("job_")
        reply = self.both.call(chance.lost, lambda: self.both.store.jobs.refuse(POOL, job_id, 60))
        assert reply.word is (Word.CONFLICT if job_id in self.both.model.jobs else Word.APPLIED)
        if job_id not in self.both.model.jobs:
            self.both.model.refused.add(job_id)

    def ingest_cancels_or_retries(self, chance: Chance) -> None:
        """From a state that may be old, with a write id that may have been used before."""
        job = self.both.model.job_at(chance.i // 2, "in_progress" if chance.i % 2 else None)
        if job is None or job.status == "completed":
            return
        write_id = self._write_id(job.id, chance.j)
        known, sequence = write_id in job.writes, job.sequence - chance.stale
        write = (self._cancel(job) if job.open else self._retry(job))._replace(guard=JobGuard(sequence=sequence))

        reply = self.both.call(chance.lost, lambda: self.both.store.jobs.append(POOL, write, write_id))

        assert reply.word is job.append(write_id, sequence)
        if reply.word is Word.APPLIED and not known:
            self._after_append(job)
            assert reply.position == self.both.last_position(job.id)

    def _after_append(self, job: ModelJob) -> None:
        if not job.open:
            job.retries()
            return
        self.both.model.take_back(self.both.model.standing(job))
        if job.owner in self.both.model.workers:
            self.both.model.workers[job.owner].work.append(("cancel", job.id))
        job.cancels()

    def _cancel(self, job: ModelJob) -> Write:
        if job.owner is None:
            ended = ev.JobCancelled(how="queued", by="a")
            return Write(job.id, (ended,), closes_for=job.tenant, **taking_back(self.both.model, job))
        work = (WorkEntry(job.owner, "cancel", {"jobId": job.id, "fence": job.fence}),)
        return Write(job.id, (ev.JobCancelRequested(by="a"),), work=work)

    def _retry(self, job: ModelJob) -> Write:
        event = ev.JobRetried(by="a", from_status=job.status, run=job.run + 1, max_attempts=job.attempt + 3)
        return Write(job.id, (event,), opens_for=job.tenant)

    def _write_id(self, job_id: str, j: int) -> str:
        used = [write for job, write in self._writes if job == job_id]
        if used and j % 4 == 0:
            return used[j // 4 % len(used)]
        self._writes.append((job_id, self.both.model.mint("write")))
        return self._writes[-1][1]

    def write_about_a_job_that_is_not_there(self, chance: Chance) -> None:
        gone = [*self.both.model.forgotten, *sorted(self.both.model.refused), "job_never"]
        guard = JobGuard(sequence=1) if chance.j % 2 else None
        write = Write(gone[chance.i % len(gone)], (ev.JobCancelRequested(by="a"),), guard=guard)
        assert self.both.call(0, lambda: self.both.store.jobs.append(POOL, write, "w")).word is Word.GONE
