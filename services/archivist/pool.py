"""The archivist of one pool: takes the lead, adopts, seals, trims, forgets, signs, in the order that loses nothing.

Promises: a segment is on the disk before the manifest names it, and named before anything of it leaves the log; after
any failure it begins again from what store and archive say, so a half done step is done once, or done again to the
same end; who was away for longer than its lease sees to it that what it wrote then is not what was erased meanwhile.
"""

import asyncio
import contextlib
import random
import secrets
from collections.abc import Mapping, Sequence

from contracts.archive import Archive, Gone, seal
from contracts.archive.checkpoints import SECRET, SUBJECT, Signer
from contracts.archive.names import SegmentName
from contracts.artifacts import Shelf
from contracts.erasure import Erasure
from contracts.errors import ConfigError, Corrupt, HeadraceError, Unavailable
from contracts.ids import mint_token
from contracts.positions import before, entry_key
from contracts.retention import Kept, kept, shortest
from contracts.store import Store, keys
from contracts.store.archive import Lead, Manifest
from contracts.store.log import pause
from contracts.store.records import Record, RecordReader, may_lack
from contracts.store.words import Word
from contracts.store.write import Write
from contracts.telemetry import Logger
from contracts.waiting import wait
from services.archivist import adopting, checkpoints, sealing
from services.archivist.config import ArchivistConfig
from services.archivist.erasing import PoolEraser, PoolSweeper
from services.archivist.forgetting import forgettable, postponed
from services.archivist.usage import UsageKeeper

MOST_FORGOTTEN = 50  # in one call, while which the store does nothing else
ERASE_AGAIN_MS = 10_000  # after one that failed
MOST_LOOKS = 10  # before it ends; who leads needs a look or two to be done with what waits
FIRST_SWEEP_MS = 60_000  # after it took the lead: what was left then is more pressing
ELSEWHERE = (
    "HEADRACE_ARCHIVE__URL: the archive of pool {pool} lies elsewhere: a directory serves one host, and another one "
    "was given before; give that one, or an object store that all hosts reach"
)
MOST_ROUNDS = 50  # of one kind before the others have their turn


class TakenOver(HeadraceError):
    """Another archivist leads this pool now; what was under way is its matter."""

    code = "fenced"


class PoolArchivist:
    """One candidate for the archive of one pool; run `follow` as a task."""

    def __init__(
        self, store: Store, archive: Archive, shelf: Shelf, place: str, pool: str, config: ArchivistConfig, log: Logger
    ) -> None:  # fmt: skip
        """`shelf`: the files of jobs, for those that are erased."""
        self._store, self._archive, self._place, self._pool, self._config = store, archive, place, pool, config
        self._log = log.bind(pool=pool)
        self._eraser = PoolEraser(store, archive, shelf, pool)
        self._sweeper = PoolSweeper(store, archive, shelf, pool, config.artifacts_ms)
        self._sweeping: asyncio.Task[None] | None = None
        self._reader = RecordReader(store.channel())
        self._token = mint_token(random.SystemRandom().getrandbits(80))
        self._usage = UsageKeeper(store, archive, pool, config.usage_ms)
        self._wrote: set[str] = set()  # jobs whose bodies it wrote since it last was sure to lead
        self._manifest: Manifest | None = None  # of this term, once what was found is adopted
        self._now_ms = self._erases_from_ms = self._sweeps_from_ms = 0
        self._seen: Record | None = None  # the newest entry that waited at the last look

    async def follow(self, stop: asyncio.Event) -> None:
        """Work until `stop`, whatever goes away meanwhile."""
        failures = 0
        while not stop.is_set():
            try:
                await self.run_once()
                failures = 0
            except ConfigError:
                raise
            except (HeadraceError, OSError) as error:
                failures += 1
                self._log.warning("archiving_failed", reason=str(error), failures_count=failures)
                await pause(min(failures, 6), stop, random.random())
            await wait(stop, self._config.look_ms / 1000)
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self._leave(look_s=self._config.look_ms / 1000)

    async def run_once(self) -> None:
        """Do all that is due. Raises Unavailable, Corrupt, TakenOver; then the next look begins from the start."""
        try:
            await self._do_what_is_due()
        except BaseException:
            self._manifest = None
            self._usage.begin_again()
            raise

    async def _do_what_is_due(self) -> None:
        begins = self._manifest is None
        if begins and self._wrote:
            await self._look_again()
        if not await self._lead():
            return
        if begins:
            self._log.info("archive_taken", upto=self._of.upto, count=self._of.count)
            await self._adopt()
            await self._count_backlog()
        for _ in range(MOST_ROUNDS):
            if not await self._seal_next():
                break
        if self._pool != keys.SYSTEM:  # every process folds all of that log when it starts
            await self._trim()
            await self._forget()
            await self._usage.drop_old(self._now_ms)
            await self._erase()
            self._sweep()
        await self._sign()

    async def _seal_next(self) -> bool:
        """Seal the next segment, if it is time; returns whether there may be another."""
        pace = self._config.pace
        waiting = (await self._reader.after(self._pool, self._of.upto, pace.seal_entries)).records
        await self._check_seen(waiting)
        records = sealing.due(waiting, self._now_ms, pace, self._config.look_ms)
        if not records:
            return False
        segment, packed = await self._archive.run(
            seal, self._pool, self._of.epoch, bytes.fromhex(self._of.digest), records
        )
        await self._archive.run(self._archive.shelf.put, segment, packed)
        await self._keep_bodies(segment.name, records)
        await self._say(records, segment.after.hex())
        await self._usage.count(self._token, records)
        return True

    async def _keep_bodies(self, name: SegmentName, records: Sequence[Record]) -> None:
        """Keep what people wrote and were answered, before anything may forget it."""
        bodies = await self._store.archive.bodies(self._pool, sealing.bodied(records))
        if bodies:
            self._wrote |= bodies.keys()
            await self._archive.run(self._archive.shelf.put_bodies, self._pool, name, bodies)

    async def _say(self, records: Sequence[Record], digest: str) -> None:
        """Move the manifest: from now on the segment counts."""
        upto = records[-1].position
        reply = await self._store.archive.seal(
            self._pool, self._token, self._of.upto, upto, digest, len(records), sealing.moves(records)
        )
        if not reply.applied or not await self._lead():
            raise TakenOver(self._pool)
        self._log.info("segment_sealed", upto=upto, entries_count=len(records))

    async def _count_backlog(self) -> None:
        """Count what was sealed and not counted yet; a segment that cannot be read must not keep the log from being."""
        if self._pool == keys.SYSTEM:
            return
        try:
            await self._usage.catch_up(self._token, self._of.upto)
        except (Corrupt, Gone) as error:
            self._usage.begin_again()
            self._log.error("usage_not_counted", reason=str(error))

    async def _trim(self) -> None:
        live_s = self._kept_by_all().live_s
        keep_from_ms = self._now_ms - round(live_s * 1000) if live_s else None
        for _ in range(MOST_ROUNDS):
            trimmed = await self._store.archive.trim(self._pool, self._token, keep_from_ms)
            if trimmed is None or not trimmed[1]:
                return
            self._log.info("log_trimmed", position=trimmed[0], entries_count=trimmed[1])

    async def _forget(self) -> None:
        needed_from = await self._store.needed_by(self._pool, keys.GROUP_NOTIFIER)
        for kind in keys.ENDED_KINDS:
            for _ in range(MOST_ROUNDS):
                if not await self._forget_some(kind, needed_from):
                    break

    async def _forget_some(self, kind: str, needed_from: str) -> bool:
        """Forget the oldest ones of a kind that are due; returns whether there may be others."""
        completed = kind == "completed"
        least_ms = round(self._kept_by_all().of(completed=completed) * 1000)
        archive = self._store.archive
        job_ids = await archive.ended(self._pool, kind, self._now_ms - least_ms, MOST_FORGOTTEN)
        standings = await archive.standings(self._pool, job_ids)
        later = postponed(
            standings, lambda tenant: round(self._kept(tenant).of(completed=completed) * 1000), least_ms, self._now_ms
        )
        if later:
            await archive.postpone(self._pool, kind, later)
        due = [job_id for job_id in job_ids if job_id not in later]
        writes = forgettable(due, standings, self._config.known_for_s)
        count = await archive.forget(self._pool, self._token, kind, needed_from, writes)
        return bool(count or later) and len(job_ids) == MOST_FORGOTTEN

    def _kept(self, tenant_id: str) -> Kept:
        """How long things of a tenant are kept, as it holds now."""
        return kept(self._config.kept, self._store.directory.configuration.retention, self._pool, tenant_id)

    def _kept_by_all(self) -> Kept:
        return shortest(self._config.kept, self._store.directory.configuration.retention, self._pool)

    def _sweep(self) -> None:
        """See to files whose time is over, beside everything else."""
        if not self._sweeps_from_ms:
            self._sweeps_from_ms = self._now_ms + min(FIRST_SWEEP_MS, self._config.sweep_ms)
        if self._now_ms >= self._sweeps_from_ms and (self._sweeping is None or self._sweeping.done()):
            self._sweeps_from_ms = self._now_ms + self._config.sweep_ms
            self._sweeping = asyncio.create_task(self._sweep_all(self._now_ms))

    async def _sweep_all(self, now_ms: int) -> None:
        try:
            while count := await self._sweeper.sweep(now_ms, lambda: self._manifest is not None):
                self._log.info("files_expired", files_count=count)
        except (Unavailable, ValueError) as error:
            self._log.warning("sweeping_failed", reason=str(error))  # the next one is not long in coming

    async def _erase(self) -> None:
        """Finish what was asked to be erased; what fails is put off, and holds up nothing else."""
        if self._now_ms < self._erases_from_ms:
            return
        try:
            erasures = await self._eraser.waiting()
            if erasures:
                await self._remove(erasures)
        except (Unavailable, Corrupt) as error:
            self._erases_from_ms = self._now_ms + ERASE_AGAIN_MS
            self._log.warning("erasing_failed", reason=str(error))

    async def _remove(self, erasures: Mapping[str, Erasure]) -> None:
        async for written_next in self._eraser.remove(erasures):
            if not await self._lead():  # it may take longer than the lease, and only the leader writes there
                raise TakenOver(self._pool)
            self._wrote |= written_next
        if not await self._lead():
            raise TakenOver(self._pool)
        if await self._store.erasing.end(self._pool, self._token, list(erasures)):
            self._log.info("jobs_erased", jobs_count=len(erasures))

    async def _sign(self) -> None:
        of = self._of
        if not checkpoints.is_due(of, self._now_ms, self._config.checkpoint_ms):
            return
        seed = await self._store.directory.keep_secret(SECRET, secrets.token_hex(32))
        event = Signer(bytes.fromhex(seed)).sign(self._pool, of.epoch, of.upto, of.count, of.digest)
        write = Write(SUBJECT, (event,), of_job=False)
        reply = await self._store.archive.checkpoint(self._pool, self._token, of.count, write)
        if reply.word is Word.APPLIED:
            self._log.info("checkpoint_signed", position=of.upto, count=of.count)

    async def _adopt(self) -> None:
        """Take in what an archivist that died had kept and not said yet; set aside what the log does not hold."""
        names = await self._archive.run(self._archive.shelf.names, self._pool)
        if await self._has_lost(names):
            await self._fork(max((name.last for name in names), key=entry_key, default=self._of.upto))
        for name in adopting.unsaid(names, self._of.upto):
            segment = await self._archive.open(self._pool, name)
            log = (await self._reader.after(self._pool, self._of.upto, len(segment.records))).records
            if adopting.is_next(segment, log, self._of):
                await self._keep_bodies(name, segment.records)
                await self._say(segment.records, segment.after.hex())
                self._log.info("segment_adopted", first=name.first, last=name.last)
            else:
                await self._archive.run(self._archive.shelf.set_aside, self._pool, name)
                self._log.error("segment_set_aside", first=name.first, last=name.last)

    async def _has_lost(self, names: Sequence[SegmentName]) -> bool:
        """Whether the log lacks, or contradicts, what was archived of it."""
        if entry_key(await self._store.end_of_log(self._pool)) < entry_key(self._of.upto):
            return True
        for name in names[-1:]:
            last = (await self._archive.open(self._pool, name)).records[-1]
            found = await self._reader.after(self._pool, before(name.last), 1)
            is_trimmed = may_lack(before(name.last), found.trimmed)
            return not is_trimmed and found.records[:1] != [last]
        return False

    async def _check_seen(self, waiting: Sequence[Record]) -> None:
        """Begin a new epoch if the log lacks what it held at the last look: it was lost before it was sealed."""
        seen, self._seen = self._seen, waiting[-1] if waiting else None
        if seen is not None and entry_key(seen.position) > entry_key(self._of.upto) and seen not in waiting:
            await self._fork(seen.position)

    async def _fork(self, highest: str) -> None:
        """Begin a new epoch: what positions of this one mean is not sure any more."""
        epoch = await self._store.archive.fork(self._pool, self._token, self._of.epoch, highest)
        self._log.error("log_forked", epoch=epoch, highest=highest, reason="the log lacks what was archived of it")
        if not await self._lead():
            raise TakenOver(self._pool)

    async def _lead(self) -> bool:
        """Keep the lead and read the manifest; False when it is somebody else's."""
        lead = await self._store.archive.lead(self._pool, self._token, self._config.lease_ms, self._place)
        if lead.elsewhere:
            raise ConfigError([ELSEWHERE.format(pool=self._pool)])
        known, self._manifest, self._now_ms = self._manifest, lead.manifest, lead.now_ms
        if known is not None and lead.manifest is not None and entry_key(lead.manifest.upto) < entry_key(known.upto):
            raise TakenOver(self._pool)  # the store lost what was said to it: begin again with what is kept
        if known is not None and self._wrote:
            self._see_whether_led(known, lead)
        return lead.manifest is not None

    def _see_whether_led(self, known: Manifest, lead: Lead) -> None:
        """Forget whose bodies were written if it led all the while; who did not must look what was erased then."""
        if lead.manifest is None or lead.now_ms >= known.until_ms:
            self._log.warning("led_no_more", jobs_count=len(self._wrote))
            raise TakenOver(self._pool)
        self._wrote.clear()

    @property
    def _of(self) -> Manifest:
        if self._manifest is None:
            raise TakenOver(self._pool)
        return self._manifest

    async def _look_again(self) -> None:
        self._wrote = set(await self._eraser.again(self._wrote))

    async def _leave(self, look_s: float) -> None:
        """Resign; before, what it wrote without being sure to lead is left to who leads."""
        for _ in range(MOST_LOOKS):
            if not self._wrote:
                break
            with contextlib.suppress(HeadraceError, OSError):
                await self._look_again()
            await asyncio.sleep(look_s)
        await self._resign()

    async def _resign(self) -> None:
        try:
            await self._store.archive.resign(self._pool, self._token)
        except HeadraceError:
            return  # the lease ends by itself
