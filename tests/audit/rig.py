"""A pool that has lived a while, and hands that change what must not be changed."""

import hashlib
from typing import Any

import orjson
import zstandard

from contracts import events as ev
from contracts import ids
from contracts.archive import Archive
from contracts.archive.names import SegmentName
from contracts.archive.segments import lines_of
from contracts.audit import Beside, Scope, Verdict, verify
from contracts.audit.queues import QueueAudit
from contracts.audit.verify import EVERYTHING
from contracts.deliveries import Attempted, PlannedDelivery, Settlement
from contracts.endpoints import anonymous_endpoint
from contracts.positions import entry_key
from contracts.retention import Kept
from contracts.store import Word, keys
from contracts.store.jobs import Dedup, Limits
from contracts.store.write import JobGuard, Write
from services.archivist.audit import RetentionAudit
from services.archivist.config import ArchivistConfig, Pace
from tests.archivist.rig import POOL, TENANT, Pool

SIGNS = ArchivistConfig(Pace(0, 7, 0), kept=Kept(3_600, 3_600), known_for_s=60, checkpoint_ms=0)
URL = "https://app.example/hook"
ENDPOINT = "anon000000000001"


class Lived:
    """`open` and `ended` are jobs; `delivery` was tried twice."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.store, self.client = pool, pool.store, pool.store.client
        self.open: list[str] = []
        self.ended: list[str] = []
        self.delivery = ""

    @classmethod
    async def live(cls, pool: Pool) -> "Lived":
        """Make it: three segments or more in the archive, a checkpoint in the log, and entries after it."""
        self = cls(pool)
        for number in range(12):
            job_id = await pool.job(b"x" * (number + 1))
            (self.ended if number % 2 else self.open).append(job_id)
        for job_id in self.ended:
            await pool.cancel(job_id)
        self.delivery = await self.delivered(self.ended[0], 1_000_000_000_000, None)
        await self.seal()  # signs; the next time the checkpoint is sealed, too
        await self.seal()
        self.open.append(await pool.job(b"newest"))
        await pool.cancel(self.open.pop(0))
        return self

    async def dead_letter(self) -> str:
        """A job that failed for good."""
        job_id, error = await self.pool.job(), ev.ErrorFacts(code="worker_lost", retryable=True)
        failed = ev.JobFailed(error=error, attempts=1, dead_lettered=True)
        write = Write(job_id, (failed,), guard=JobGuard(), closes_for=TENANT)
        assert (await self.store.jobs.append(POOL, write, "d")).applied
        return job_id

    async def seal(self) -> None:
        archivist = self.pool.archivist(config=SIGNS)
        await archivist.run_once()
        await archivist._resign()

    async def delivered(self, job_id: str, *next_ms: int | None) -> str:
        """Plan a delivery and try it so often; the next attempt is due then, None after the last one."""
        delivery = ids.delivery_id(job_id, 2, ENDPOINT, 0)
        planned = PlannedDelivery(delivery, {"body": "{}"}, ENDPOINT, TENANT, job_id, 2)
        await self.store.deliveries.plan(POOL, "", [planned], [])
        for attempt, at_ms in enumerate(next_ms, 1):
            made = Attempted(at_ms is None, "http_200", 3)
            settlement = Settlement(delivery, ENDPOINT, attempt, {"state": "x"}, made, at_ms, keep_s=60)
            await self.store.deliveries.settle(POOL, settlement, [attempted(delivery, job_id, attempt, at_ms)])
        return delivery

    async def submitted(self, dedup: str = "", tenant: str = TENANT) -> str:
        """A job as the API makes one: a digest of its body, a webhook of its own, a dedup key if asked."""
        self.pool.minted += 1
        job_id = ids.mint_job_id(1_764_457_200_000, self.pool.minted, "aa")
        body = orjson.dumps({"prompt": f"{job_id}", "webhookUrl": URL})
        created = ev.JobCreated(
            tenant_id=tenant, model="echo@1", timeout_ms=1_000, body_bytes=len(body), dedup_hash=dedup or None,
            body_digest=hashlib.sha256(body).hexdigest(), webhook_events=("job.cancelled",),
        )  # fmt: skip
        held = Dedup(dedup) if dedup else None
        reply = await self.store.jobs.admit(POOL, Write(job_id, (created,)), body, tenant, Limits(), dedup=held)
        assert (reply.word, reply.same_as) == (Word.APPLIED, "")
        return job_id

    async def hooked(self) -> tuple[str, str]:
        """A job that ended, whose webhook is not called yet: the job and the delivery that the notifier planned."""
        job_id = await self.submitted()
        write = Write(
            job_id, (ev.JobCancelled(how="queued"),), guard=JobGuard(), closes_for=TENANT,
            hooked=frozenset({"job.cancelled"}),
        )  # fmt: skip
        assert (await self.store.jobs.append(POOL, write, f"c{job_id}")).applied
        name = anonymous_endpoint(TENANT, URL)
        delivery = ids.delivery_id(job_id, 2, name, 0)
        planned = PlannedDelivery(delivery, {"body": "{}", "url": URL}, name, TENANT, job_id, 2)
        await self.store.deliveries.plan(POOL, "", [planned], [])
        await self.pool.plan()
        return job_id, delivery

    async def verify(self, scope: Scope = EVERYTHING) -> Verdict:
        """As a new process, which remembers no segment."""
        beside: list[Beside] = [RetentionAudit(self.store, POOL), QueueAudit(self.store, POOL)]
        return await verify(self.store, Archive(self.store, self.pool.objects), POOL, scope, beside)

    async def entries(self) -> list[tuple[str, dict[bytes, bytes]]]:
        """The live log."""
        found: Any = await self.client.xrange(keys.log(POOL))
        return [(position.decode(), fields) for position, fields in found]

    async def sealed(self) -> list[SegmentName]:
        return await self.pool.archive.segments(POOL)

    async def unsealed(self) -> list[tuple[str, dict[bytes, bytes]]]:
        """The entries that are in the log only."""
        upto = (await self.sealed())[-1].last
        return [entry for entry in await self.entries() if entry_key(entry[0]) > entry_key(upto)]

    def lines(self, name: SegmentName) -> list[bytes]:
        found = self.pool.objects.get(name.key(POOL))
        assert found is not None
        with found:
            return lines_of(b"".join(iter(found.read, b"")), "here").splitlines()

    def put(self, name: SegmentName, lines: list[bytes]) -> None:
        """A foreign hand writes a segment."""
        packed = zstandard.ZstdCompressor().compress(b"\n".join(lines) + b"\n")
        self.pool.objects.put_file(name.key(POOL), packed, "application/zstd")

    async def trim_all(self) -> None:
        """Nothing of what is sealed is in the log any more."""
        await self.pool.snapshot_here()
        await self.pool.plan()
        upto = (await self.sealed())[-1].last
        await self.client.xtrim(keys.log(POOL), minid=upto, approximate=False)
        await self.client.hset(keys.meta(POOL), "trimmed", upto)


def attempted(delivery_id: str, job_id: str, attempt: int, next_ms: int | None) -> ev.WebhookAttempted:
    return ev.WebhookAttempted(
        delivery_id=delivery_id, job_id=job_id, event_type="job.cancelled", attempt=attempt, outcome="http_200",
        next_at_ms=next_ms,
    )  # fmt: skip


def edited(line: bytes, before: bytes, after: bytes) -> bytes:
    """Change a line of a segment so that it can still be read."""
    changed = line.replace(before, after, 1)
    assert changed != line
    orjson.loads(changed)
    return changed
