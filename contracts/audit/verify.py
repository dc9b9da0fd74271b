"""Verifies a pool: reads archive and log as one, then looks at the live state batch by batch and compares.

Promises: writes nothing; each batch of live state is compared at the exact position of the log at which it was read, so
a pool that works on meanwhile gives no false finding; memory follows the jobs that the store holds, not the log.
Does not promise to find an entry without a job that was removed before it was archived: nothing else knew of it.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from contracts.archive import Archive
from contracts.archive.checkpoints import SECRET, Signer, is_genuine
from contracts.archive.segments import parse
from contracts.audit.chain_audit import ChainAudit, first_difference
from contracts.audit.findings import Findings, Projection
from contracts.audit.job_hashes import Fields, folded, is_ended
from contracts.audit.log_audit import LogAudit
from contracts.errors import Corrupt
from contracts.events import LogCheckpointed
from contracts.positions import START, before, entry_key
from contracts.store import Store
from contracts.store.archive import Manifest
from contracts.store.log import Poison
from contracts.store.records import Record, RecordReader

AT_ONCE = 200
CHAIN_KINDS = frozenset(
    {"chain_broken", "wrong_segment", "altered_entry", "unreadable_segment", "chain_end", "forged_checkpoint",
     "checkpoint_differs", "log_differs"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of it; `position` is the newest that was looked at."""

    pool: str
    position: str
    events: int
    archived: int
    findings: Findings
    projections: tuple[Projection, ...]

    @property
    def chain_ok(self) -> bool:
        """Whether archive, chain and checkpoints are what they were."""
        return not CHAIN_KINDS & self.findings.counts.keys()

    @property
    def ok(self) -> bool:
        """Whether nothing at all is wrong."""
        return not self.findings.counts and not any(each.differing for each in self.projections)


async def verify(store: Store, archive: Archive, pool: str) -> Verdict:
    """Verify a pool. Raises Unavailable."""
    return await _Verifier(store, archive, pool).run()


class _Verifier:
    def __init__(self, store: Store, archive: Archive, pool: str) -> None:
        self._store, self._archive, self._pool = store, archive, pool
        self._log = RecordReader(store.channel())
        self._findings = Findings()
        self._jobs, self._lists = Projection("jobs"), Projection("lists")
        self._usage, self._deliveries = Projection("usage"), Projection("deliveries")

    async def run(self) -> Verdict:
        manifest = await self._store.archive.manifest(self._pool)
        await self._begin(manifest)
        if manifest is not None:
            await self._archived(manifest)
        elif not self._is_whole:
            self._audit.position = await self._archive.oldest(self._pool)
        await self._fold_to(None)
        await self._compare()
        return Verdict(
            self._pool, self._audit.position, self._audit.count, self._chain.count, self._findings,
            (self._jobs, self._lists, self._usage, self._deliveries),
        )  # fmt: skip

    async def _begin(self, manifest: Manifest | None) -> None:
        _, trimmed = await self._log.after(self._pool, START, 1)
        begins = trimmed if manifest is None else manifest.below
        self._is_whole = entry_key(begins) == (0, 0)
        seed = await self._store.directory.secret(SECRET)
        public = Signer(bytes.fromhex(seed)).public if seed else None
        self._chain = ChainAudit(self._pool, self._findings)
        self._audit = LogAudit(self._findings, self._chain, public, is_whole=self._is_whole)

    async def _archived(self, manifest: Manifest) -> None:
        names = await self._archive.segments(self._pool)  # by now there may be more than the manifest said
        for name in self._chain.next_of([name for name in names if entry_key(name.last) <= entry_key(manifest.upto)]):
            try:
                lines = await self._archive.run(self._archive.shelf.lines, self._pool, name)
                segment = parse(lines, name.key(self._pool))
            except Corrupt as error:
                self._chain.skip(name, error.reason)
                continue
            self._chain.take(name, segment, lines)
            await self._beside(segment.records)
            for record in segment.records:
                self._audit.take(record)
        self._chain.end(manifest.upto, manifest.digest, manifest.count)
        self._audit.position = max(manifest.upto, self._audit.position, key=entry_key)

    async def _beside(self, sealed: Sequence[Record]) -> None:
        """What is sealed and not trimmed is there twice, and must be the same."""
        found = await self._log.after(self._pool, before(sealed[0].position), len(sealed))
        low, high = entry_key(found.trimmed), entry_key(sealed[-1].position)
        live = [record for record in found.records if low <= entry_key(record.position) <= high]
        bad = first_difference([record for record in sealed if entry_key(record.position) >= low], live)
        if bad is not None:
            self._findings.add(bad, "log_differs", "the log is not what was sealed of it")

    async def _fold_to(self, position: str | None) -> None:
        async for batch in self._archive.read(self._pool, self._audit.position, position):
            for record in batch:
                self._audit.take(record)

    async def _compare(self) -> None:
        seen = set[str]()
        for batch in _batches(sorted(self._audit.hashes.jobs)):
            await self._compare_jobs(batch)
            seen.update(batch)
        await self._compare_strangers(seen)
        await self._compare_counters()

    async def _compare_jobs(self, job_ids: Sequence[str]) -> None:
        hashes, attempts = self._audit.hashes.jobs, self._audit.attempts
        asked = [(job_id, hashes[job_id].get("t", "")) for job_id in job_ids if job_id in hashes]
        deliveries = [each for job_id, _ in asked for each in attempts.get(job_id, ())]
        sight = await self._store.audit.look(self._pool, asked, deliveries)
        await self._fold_to(sight.position)
        for (job_id, _), live, score in zip(asked, sight.hashes, sight.scores, strict=True):
            fields = hashes.get(job_id)
            self._jobs.compare(job_id, *_differing(fields, live))
            self._lists.compare(job_id, None if fields is None else float(is_ended(fields)), score)
        for delivery_id, row in zip(deliveries, sight.deliveries, strict=True):
            self._compare_delivery(delivery_id, None if row is None else row["try"])

    def _compare_delivery(self, delivery_id: str, tries: str | None) -> None:
        job_id = "job_" + delivery_id[4:].partition("_")[0]
        attempt, is_last = self._audit.attempts.get(job_id, {}).get(delivery_id, (0, True))
        self._deliveries.rows += 1
        if tries is None and not is_last:
            self._deliveries.differs(delivery_id, f"attempt {attempt} was not the last, and the store has none")
        elif tries is not None and int(tries) < attempt:
            self._deliveries.differs(delivery_id, f"the log says attempt {attempt}, the store {tries}")

    async def _compare_strangers(self, seen: set[str]) -> None:
        """Hashes of which the log knows nothing."""
        audit = self._audit.hashes
        async for found in self._store.audit.job_ids(self._pool):
            asked = [(job_id, "") for job_id in found if job_id not in seen]
            if not asked:
                continue
            sight = await self._store.audit.look(self._pool, asked)
            await self._fold_to(sight.position)
            for (job_id, _), live in zip(asked, sight.hashes, strict=True):
                if job_id in audit.headless or (not self._is_whole and job_id not in audit.jobs):
                    self._jobs.unknown += 1
                else:
                    self._jobs.compare(job_id, *_differing(audit.jobs.get(job_id), live))

    async def _compare_counters(self) -> None:
        tenants = sorted({fields.get("t", "") for fields in self._audit.hashes.jobs.values()})
        sight = await self._store.audit.look(self._pool, tenants=tenants)
        await self._fold_to(sight.position)
        if self._audit.hashes.headless or not self._is_whole:
            self._usage.unknown += 1
            return
        expected = self._audit.hashes.usage()
        for name in sorted(expected | sight.usage):
            zero = "0" if name in ("jobs", "bytes") else None
            self._usage.compare(name, expected.get(name, zero), sight.usage.get(name, zero))
        jobs = self._audit.hashes.jobs.values()
        for tenant, size in zip(tenants, sight.sizes, strict=True):
            count = sum(fields.get("t", "") == tenant for fields in jobs)
            if count != size:
                self._lists.differs(tenant, f"the log says {count} jobs, the store {size}")


def _differing(fields: Fields | None, live: dict[str, str] | None) -> tuple[object, object]:
    """Return only what differs of both, for people to read; two equal values when nothing does."""
    if fields is None or live is None:
        return fields and {"s": fields.get("s")}, live and {"s": live.get("s")}
    there = folded(live)
    names = sorted(name for name in fields.keys() | there.keys() if fields.get(name) != there.get(name))
    return {name: fields.get(name) for name in names}, {name: there.get(name) for name in names}


def _batches(job_ids: Sequence[str]) -> Iterator[list[str]]:
    rest = iter(job_ids)
    while batch := list(islice(rest, AT_ONCE)):
        yield batch


Checkpoint = tuple[str, LogCheckpointed, bool]


async def checkpoints(store: Store, archive: Archive, pool: str) -> AsyncIterator[Checkpoint]:
    """Give the checkpoints in a log: where each stands, what it says, and whether our key signed it. Raises Gone."""
    seed = await store.directory.secret(SECRET)
    public = Signer(bytes.fromhex(seed)).public if seed else b""
    async for batch in archive.read(pool, None):
        for record in batch:
            if b"log.checkpointed" not in record.fields:
                continue
            entry = record.entry()
            event = None if isinstance(entry, Poison) else entry.event()
            if isinstance(event, LogCheckpointed):
                yield record.position, event, is_genuine(pool, event, public)
