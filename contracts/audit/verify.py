"""Verifies a pool: reads archive and log as one, then looks at the live state batch by batch and compares.

Promises: writes nothing; memory follows the jobs that the store holds, not the log. Does not promise to find an entry
without a job that was removed before it was archived: nothing else knew of it.
"""

from collections.abc import AsyncIterator, Sequence

from contracts.archive import Archive
from contracts.archive.checkpoints import SECRET, is_genuine, public_of, read_checkpoint
from contracts.archive.segments import parse
from contracts.audit.beside import Beside
from contracts.audit.chain_audit import ChainAudit, first_difference
from contracts.audit.comparing import Comparing
from contracts.audit.deliveries import DeliveryAudit
from contracts.audit.findings import Findings
from contracts.audit.log_audit import LogAudit
from contracts.audit.mending import Mender
from contracts.audit.scope import Scope, Sieve
from contracts.audit.verdict import Verdict
from contracts.errors import Corrupt
from contracts.events import LogCheckpointed
from contracts.ids import SKEW_MS, minted_ms
from contracts.positions import START, before, entry_key
from contracts.store import Store
from contracts.store.archive import Manifest
from contracts.store.records import Record, RecordReader

EVERYTHING = Scope()


async def verify(
    store: Store, archive: Archive, pool: str, scope: Scope = EVERYTHING, beside: Sequence[Beside] = ()
) -> Verdict:
    """Verify a pool, or a part of it; what is `beside` is asked only when nothing is left out. Raises Unavailable."""
    return await Verifier(store, archive, pool, scope, beside).run()


class Verifier:
    """One audit; `audit` is the log, folded as far as the verdict says."""

    def __init__(
        self, store: Store, archive: Archive, pool: str, scope: Scope = EVERYTHING, beside: Sequence[Beside] = ()
    ) -> None:  # fmt: skip
        self._store, self._archive, self._pool, self._scope = store, archive, pool, scope
        self._is_limited = not scope.is_everything
        self._beside = () if self._is_limited else beside
        self._log = RecordReader(store.channel())
        self._findings, self._sieve = Findings(), Sieve(scope)
        self._chain = ChainAudit(pool, self._findings)

    async def run(self) -> Verdict:
        """Read and compare."""
        manifest = await self._store.archive.manifest(self._pool)
        await self._begin(manifest)
        await self._read_past(manifest)
        return await self.compare()

    async def compare(self) -> Verdict:
        """Fold on to the end, and compare the live state of now."""
        await self.fold_to(self._scope.until or None)
        comparing = Comparing(self._store, self._pool, self.audit, self._scope, self.fold_to)
        projections = comparing.projections
        if not self._scope.until:
            await comparing.run()
            projections += tuple([await each.compare() for each in self._beside])
        return Verdict(
            self._pool, self.audit.position, self.audit.count, self._chain.count, self._findings, projections,
            self._scope, self._chain.digest.hex(),
        )  # fmt: skip

    async def mend(self, mender: Mender) -> None:
        """Compare, and make what differs anew."""
        mender.faulty = self.audit.faulty
        await self.fold_to(None)
        await Comparing(self._store, self._pool, self.audit, self._scope, self.fold_to, mender).run()
        await self.fold_to(None)
        for each in self._beside:
            await each.mend(mender, self.audit)

    async def _begin(self, manifest: Manifest | None) -> None:
        _, trimmed = await self._log.after(self._pool, START, 1)
        begins = trimmed if manifest is None else manifest.below
        is_whole = entry_key(begins) == (0, 0) and not self._scope.after
        public = public_of(await self._store.directory.secret(SECRET))
        endpoints = (await self._store.directory.refresh()).endpoints.values()
        deliveries = DeliveryAudit(self._findings, endpoints)
        self.audit = LogAudit(self._findings, self._chain, deliveries, public, is_whole=is_whole)
        for each in self._beside:
            await each.begin(is_whole=is_whole)

    async def _read_past(self, manifest: Manifest | None) -> None:
        """Walk the chain, or go to where the log of what is asked for begins."""
        if self._scope.is_partial:
            self.audit.position = await self._first()
        elif manifest is not None:
            await self._archived(manifest)
        elif self._scope.after or not self.audit.hashes.is_whole:
            self.audit.position = max(self._scope.after or START, await self._oldest(), key=entry_key)

    async def _first(self) -> str:
        """Return a position before everything in scope: nothing is in a log before its job's id was minted."""
        at = [self._scope.after or START, await self._oldest()]
        if self._scope.job_id:
            at.append(f"{max(0, minted_ms(self._scope.job_id) - SKEW_MS)}-0")
        return max(at, key=entry_key)

    async def _oldest(self) -> str:
        return await self._archive.oldest(self._pool)

    async def _archived(self, manifest: Manifest) -> None:
        names = await self._archive.segments(self._pool)  # by now there may be more than the manifest said
        told = [name for name in names if entry_key(name.last) <= entry_key(manifest.upto)]
        wanted = [name for name in told if self._scope.holds(name.last) or self._scope.holds(name.first)]
        if self._scope.after and wanted:
            self._chain.begin_at(before(wanted[0].first))
        for name in self._chain.next_of(wanted):
            try:
                lines = await self._archive.run(self._archive.shelf.lines, self._pool, name)
                segment = parse(lines, name.key(self._pool))
            except Corrupt as error:
                self._chain.skip(name, error.reason)
                continue
            self._chain.take(name, segment, lines)
            await self._beside_sealed(segment.records)
            for record in segment.records:
                self._take(record)
        if not self._scope.until:
            self._chain.end(manifest.upto, manifest.digest, manifest.count)
        self.audit.position = max(manifest.upto, self.audit.position, key=entry_key)

    async def _beside_sealed(self, sealed: Sequence[Record]) -> None:
        """What is sealed and not trimmed is there twice, and must be the same."""
        found = await self._log.after(self._pool, before(sealed[0].position), len(sealed))
        low, high = entry_key(found.trimmed), entry_key(sealed[-1].position)
        live = [record for record in found.records if low <= entry_key(record.position) <= high]
        bad = first_difference([record for record in sealed if entry_key(record.position) >= low], live)
        if bad is not None:
            self._findings.add(bad, "log_differs", "the log is not what was sealed of it")

    async def fold_to(self, position: str | None) -> None:
        """Fold on up to a position, or to the end."""
        if position is not None and entry_key(position) <= entry_key(self.audit.position):
            return
        async for batch in self._archive.read(self._pool, self.audit.position, position):
            for record in batch:
                self._take(record)

    def _take(self, record: Record) -> None:
        if self._is_limited and not (self._scope.holds(record.position) and self._sieve.takes(record)):
            self.audit.pass_by(record.position)
            return
        entry = self.audit.take(record)
        for each in self._beside:
            each.take(entry)


Checkpoint = tuple[str, LogCheckpointed, bool]


async def checkpoints(store: Store, archive: Archive, pool: str) -> AsyncIterator[Checkpoint]:
    """Give the checkpoints in a log: where each stands, what it says, and whether our key signed it. Raises Gone."""
    public = public_of(await store.directory.secret(SECRET))
    async for batch in archive.read(pool, None):
        for record in batch:
            if (said := read_checkpoint(record)) is not None:
                yield record.position, said, is_genuine(pool, said, public)
