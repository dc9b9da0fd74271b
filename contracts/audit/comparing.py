"""Looks at the live state batch by batch and compares it with the fold of the log.

Promises: each batch is compared at the exact position of the log at which it was read, so a pool that works on
meanwhile gives no false finding; never more than some MB of bodies are in memory.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence

from contracts.audit.deliveries import Due, expected_ids
from contracts.audit.findings import Projection
from contracts.audit.job_hashes import Fields, folded, is_ended, letter_of
from contracts.audit.log_audit import LogAudit
from contracts.audit.mending import Mender
from contracts.audit.scope import Scope
from contracts.positions import entry_key
from contracts.store import Store, keys
from contracts.store.audit import NOT_A_STRING, Asked, Live, Sight

AT_ONCE, BYTES_AT_ONCE = 200, 8 << 20
FoldTo = Callable[[str], Awaitable[None]]


class Comparing:
    """One comparison; `projections` is what came of it."""

    def __init__(
        self, store: Store, pool: str, audit: LogAudit, scope: Scope, fold_to: FoldTo, mender: Mender | None = None
    ) -> None:  # fmt: skip
        self._store, self._pool, self._audit, self._scope, self._fold_to = store, pool, audit, scope, fold_to
        self._mender = mender
        self._jobs, self._lists, self._bodies = Projection("jobs"), Projection("lists"), Projection("bodies")
        self._dedup, self._counters = Projection("dedup"), Projection("counters")
        self._deliveries, self._letters = Projection("deliveries"), Projection("dead_letters")

    @property
    def projections(self) -> tuple[Projection, ...]:
        """All of them, whatever came of it."""
        return (
            self._jobs, self._lists, self._bodies, self._dedup, self._counters, self._deliveries, self._letters,
        )  # fmt: skip

    async def run(self) -> None:
        """Compare everything in scope. Raises Unavailable."""
        planned_to = await self._store.needed_by(self._pool, keys.GROUP_NOTIFIER)
        set_aside = await self._store.audit.poisoned(self._pool)
        seen = set[str]()
        for batch in self._batches(sorted(self._audit.hashes.jobs)):
            await self._compare_jobs(batch, planned_to, set_aside)
            seen.update(asked.job_id for asked in batch)
        await self._compare_strangers(seen)
        if not self._scope.job_id:
            await self._compare_counters()

    def _batches(self, job_ids: Sequence[str]) -> Iterator[list[Asked]]:
        batch, size = list[Asked](), 0
        for job_id in job_ids:
            fields = self._audit.hashes.jobs.get(job_id)
            if fields is None:  # forgotten meanwhile
                continue
            batch.append(Asked(job_id, fields.get("t", ""), int(fields.get("u", 0)), fields.get("dd", "")))
            size += batch[-1].body_bytes
            if len(batch) == AT_ONCE or size > BYTES_AT_ONCE:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    async def _compare_jobs(self, batch: list[Asked], planned_to: str, set_aside: set[str]) -> None:
        hashes, attempts = self._audit.hashes.jobs, self._audit.deliveries.attempts
        tried = [each for asked in batch for each in attempts.get(asked.job_id, ())]
        sight = await self._store.audit.look(self._pool, batch, tried)
        await self._fold_to(sight.position)
        bodies = dict[str, bytes]()
        for asked, live in zip(batch, sight.jobs, strict=True):
            fields = hashes.get(asked.job_id)
            is_same = self._jobs.compare(asked.job_id, *differing(fields, live.row))
            score = None if fields is None else float(is_ended(fields))
            is_same = self._lists.compare(asked.job_id, score, live.score) and is_same
            letter = None if fields is None else letter_of(fields)
            if letter is not None or live.letter is not None:
                is_same = self._letters.compare(asked.job_id, letter, live.letter) and is_same
            if self._mender is not None and not is_same:
                await self._mender.job(asked.job_id, asked.tenant_id, fields, live, sight.position)
            if fields is not None and live.row is not None:
                await self._compare_body(asked.job_id, fields, live, sight.position)
                await self._compare_holder(asked, fields, live.holder)
                bodies[asked.job_id] = live.body or b""
        for delivery_id, row in zip(tried, sight.deliveries, strict=True):
            await self._compare_delivery(delivery_id, None if row is None else row.get("try", ""), sight.position)
        await self._compare_planned(bodies, planned_to, set_aside)

    async def _compare_body(self, job_id: str, fields: Fields, live: Live, position: str) -> None:
        self._bodies.rows += 1
        if job_id in self._audit.hashes.erased:  # with the event that says so
            if live.body is not None:
                self._bodies.differs(job_id, "it was erased, and its content is still there")
                if self._mender is not None:
                    self._mender.leave_content(job_id)
            return
        digest = self._audit.hashes.digests.get(job_id, "")
        if live.body is None or live.body == NOT_A_STRING:
            self._bodies.differs(job_id, "its body is lost")
        elif digest and hashlib.sha256(live.body).hexdigest() != digest:
            self._bodies.differs(job_id, "its body is not what was admitted")
        else:
            return
        if self._mender is not None:
            await self._mender.body(job_id, fields, live, digest, position)

    async def _compare_holder(self, asked: Asked, fields: Fields, holder: str | None) -> None:
        if "dd" not in fields:
            return
        expected = asked.job_id if holds_key(fields) else None
        # who does not hold it may not; who does then is that job's matter
        there = holder if expected or holder == asked.job_id else None
        if not self._dedup.compare(asked.job_id, expected, there) and self._mender is not None:
            await self._mender.key(asked.tenant_id, fields["dd"], there, expected)

    async def _compare_delivery(self, delivery_id: str, tries: str | None, position: str) -> None:
        job_id = "job_" + delivery_id[4:].partition("_")[0]
        attempt, is_last = self._audit.deliveries.attempts.get(job_id, {}).get(delivery_id, (0, True))
        self._deliveries.rows += 1
        if tries == str(attempt) or (tries is None and is_last):
            return
        if tries is None:
            self._deliveries.differs(delivery_id, f"attempt {attempt} was not the last, and the store has none")
        else:
            self._deliveries.differs(delivery_id, f"the log says attempt {attempt}, the store {tries}")
        if self._mender is not None:
            await self._mender.tries(delivery_id, tries, attempt, position)

    async def _compare_planned(self, bodies: dict[str, bytes], planned_to: str, set_aside: set[str]) -> None:
        """What the notifier is done with, and was never tried, must lie in the store."""
        expected = dict[str, tuple[str, Due]]()
        for job_id, body in bodies.items():
            due = [each for each in self._audit.deliveries.due.get(job_id, ()) if _is_due(each, planned_to, set_aside)]
            if due:
                fields = self._audit.hashes.jobs[job_id]
                expected |= {name: (job_id, each) for name, each in expected_ids(job_id, due, fields, body).items()}
        if not expected:
            return
        sight = await self._store.audit.look(self._pool, deliveries=list(expected))
        await self._fold_to(sight.position)
        for (delivery_id, (job_id, one)), row in zip(expected.items(), sight.deliveries, strict=True):
            self._deliveries.rows += 1
            if row is None and one in self._audit.deliveries.due.get(job_id, ()):
                self._deliveries.differs(delivery_id, f"it was planned for the event at {one.position}, and is lost")
                if self._mender is not None:
                    await self._mender.delivery(job_id, delivery_id, one.position)

    async def _compare_strangers(self, seen: set[str]) -> None:
        """Hashes of which the log knows nothing."""
        audit = self._audit.hashes
        async for found in self._ids_beyond():
            batch = [Asked(job_id) for job_id in found if job_id not in seen]
            if not batch:
                continue
            sight = await self._store.audit.look(self._pool, batch)
            await self._fold_to(sight.position)
            for (job_id, *_), live in zip(batch, sight.jobs, strict=True):
                if job_id in audit.headless or (not audit.is_whole and job_id not in audit.jobs):
                    self._jobs.unknown += 1
                elif not self._jobs.compare(job_id, *differing(audit.jobs.get(job_id), live.row)) and self._mender:
                    self._mender.stranger(job_id)

    async def _ids_beyond(self) -> AsyncIterator[list[str]]:
        if self._scope.job_id:
            yield [] if self._scope.tenant_id else [self._scope.job_id]  # else it may be another tenant's
        elif self._scope.tenant_id:
            async for found in self._store.audit.listed(self._pool, self._scope.tenant_id):
                yield found
        else:
            async for found in self._store.audit.job_ids(self._pool):
                yield found

    async def _compare_counters(self) -> None:
        hashes = self._audit.hashes
        tenants = sorted({fields.get("t", "") for fields in hashes.jobs.values()} | ({self._scope.tenant_id} - {""}))
        sight = await self._store.audit.look(self._pool, tenants=tenants)
        await self._fold_to(sight.position)
        if hashes.headless or not hashes.is_whole:
            self._counters.unknown += 1
            return
        expected, counters = hashes.counters(), sight.counters
        of_one = {f"b:{self._scope.tenant_id}"} if self._scope.tenant_id else None
        missing = dict[str, int]()
        for name in sorted(expected | counters):
            zero = "0" if name in ("jobs", "bytes") else None
            is_asked = of_one is None or name in of_one
            is_same = not is_asked or self._counters.compare(name, expected.get(name, zero), counters.get(name, zero))
            if not is_same:
                missing[name] = int(expected.get(name, 0)) - whole(counters.get(name, ""))
        if missing and self._mender is not None:
            await self._mender.counters(missing, sight.recounted, sight.position)
        await self._compare_sizes(tenants, sight)
        letters = sum(letter_of(fields) is not None for fields in hashes.jobs.values())
        if self._scope.is_everything and letters != sight.letters:
            self._letters.differs("all", f"the log says {letters} dead letters, the store {sight.letters}")
            await self._mend_list("")

    async def _compare_sizes(self, tenants: Sequence[str], sight: Sight) -> None:
        jobs, held = _by_tenant(self._audit.hashes.jobs.values())
        for tenant, size, count in zip(tenants, sight.sizes, sight.held, strict=True):
            if jobs.get(tenant, 0) != size:
                self._lists.differs(tenant, f"the log says {jobs.get(tenant, 0)} jobs, the store {size}")
                await self._mend_list(tenant)
            if held.get(tenant, 0) != count:
                self._dedup.differs(tenant, f"the log says {held.get(tenant, 0)} keys are held, the store {count}")
                await self._mend_keys(tenant)

    async def _mend_list(self, tenant: str) -> None:
        """Take off a list what is no job; a job that is missing in it was put back when it was compared."""
        if self._mender is None:
            return
        async for found in self._store.audit.listed(self._pool, tenant):
            for job_id in found:
                if job_id not in self._audit.hashes.jobs:
                    await self._mender.listed_stranger(tenant, job_id, self._audit.position)

    async def _mend_keys(self, tenant: str) -> None:
        """Take a key from who does not hold it by the log."""
        if self._mender is None:
            return
        for dedup_hash, holder in (await self._store.audit.held(self._pool, tenant)).items():
            fields = self._audit.hashes.jobs.get(holder)
            if fields is None or fields.get("dd") != dedup_hash or not holds_key(fields):
                await self._mender.key(tenant, dedup_hash, holder, None)


def _by_tenant(jobs: Iterable[Fields]) -> tuple[dict[str, int], dict[str, int]]:
    """Count jobs, and those that hold a dedup key."""
    counts, held = dict[str, int](), dict[str, int]()
    for fields in jobs:
        tenant = fields.get("t", "")
        counts[tenant] = counts.get(tenant, 0) + 1
        if holds_key(fields):
            held[tenant] = held.get(tenant, 0) + 1
    return counts, held


def whole(text: str) -> int:
    """Read a counter; what a foreign hand made something else of counts nothing."""
    return int(text) if text.removeprefix("-").isdecimal() else 0


def holds_key(fields: Fields) -> bool:
    """Whether a job holds a dedup key while it is in flight; one that runs again does not take it back."""
    return "dd" in fields and not is_ended(fields) and fields.get("r") == "1"


def _is_due(due: Due, planned_to: str, set_aside: set[str]) -> bool:
    return entry_key(due.position) < entry_key(planned_to) and due.position not in set_aside


def differing(fields: Fields | None, live: dict[str, str] | None) -> tuple[object, object]:
    """Return only what differs of both, for people to read; two equal values when nothing does."""
    if fields is None or live is None:
        return fields and {"s": fields.get("s")}, live and {"s": live.get("s")}
    there = folded(live)
    if fields == there:
        return None, None
    names = sorted(name for name in fields.keys() | there.keys() if fields.get(name) != there.get(name))
    return {name: fields.get(name) for name in names}, {name: there.get(name) for name in names}
