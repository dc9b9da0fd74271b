"""A pool with jobs, an archivist that may fail at any step, and what must hold afterwards."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from contracts import events as ev
from contracts import ids
from contracts.archive import START_DIGEST, Archive, first_bad
from contracts.artifacts import Shelf
from contracts.artifacts.local import LocalObjects
from contracts.positions import entry_key
from contracts.retention import Kept
from contracts.store import Store, Word, keys
from contracts.store.jobs import Limits
from contracts.store.log import GroupReader
from contracts.store.usage import Look
from contracts.store.write import JobGuard, Write
from contracts.usage.rows import Key, Row
from contracts.wire import Entry
from services.archivist.config import ArchivistConfig, Pace
from services.archivist.pool import PoolArchivist
from tests.usage.whole_log import fold_all

POOL, TENANT = "default", "t_a"
AT_ONCE = ArchivistConfig(Pace(0, 7, 0), kept=Kept(0, 0), known_for_s=60, checkpoint_ms=3_600_000)


class Fault(OSError):
    """The process dies here."""


class Failing:
    """Passes calls on to `of`; dies before or after the n-th call of those in `fail`."""

    def __init__(self, of: Any, gate: Callable[[str], None], names: tuple[str, ...]) -> None:
        self._of, self._gate, self._names = of, gate, names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if name not in self._names:
            return found
        if asyncio.iscoroutinefunction(found):

            async def call(*args: Any, **kwargs: Any) -> Any:
                self._gate(f"before {name}")
                answer = await found(*args, **kwargs)
                self._gate(f"after {name}")
                return answer

            return call

        def call_now(*args: Any, **kwargs: Any) -> Any:
            self._gate(f"before {name}")
            answer = found(*args, **kwargs)
            self._gate(f"after {name}")
            return answer

        return call_now


class Pool:
    """Jobs that are made and ended, a group that reads them, and the log as it was before anything was trimmed."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.objects = LocalObjects(folder)
        self.archive = Archive(store, self.objects)
        self.shelf = Shelf(LocalObjects(folder.parent / "artifacts"))
        self.seen: dict[str, tuple[bytes, ...]] = {}  # by position, as the log had it
        self.minted = 0
        self._group = self.group("n")

    def group(self, consumer: str) -> GroupReader:
        """A member of the notifier's group."""
        return self.store.group(POOL, keys.GROUP_NOTIFIER, consumer)

    def archivist(self, gate: Callable[[str], None] | None = None, config: ArchivistConfig = AT_ONCE) -> PoolArchivist:
        """A new process: with another token, which knows nothing of the one before."""
        store: Any = self.store
        objects: Any = self.objects
        if gate is not None:
            calls = ("seal", "trim", "forget", "bodies", "checkpoint")
            store = Failing(self.store, gate, ())
            store.__dict__["archive"] = Failing(self.store.archive, gate, calls)
            store.__dict__["usage"] = Failing(self.store.usage, gate, ("tally",))
            objects = Failing(self.objects, gate, ("put_file",))
        return PoolArchivist(
            store, Archive(self.store, objects), self.shelf, "here", POOL, config, structlog.get_logger()
        )

    async def job(self, body: bytes = b"{}") -> str:
        self.minted += 1
        job_id = ids.mint_job_id(1_764_457_200_000, self.minted, "aa")
        event = ev.JobCreated(tenant_id=TENANT, model="echo@1", timeout_ms=1_000, body_bytes=len(body))
        reply = await self.store.jobs.admit(POOL, Write(job_id, (event,)), body, TENANT, Limits())
        assert reply.word is Word.APPLIED
        return job_id

    async def cancel(self, job_id: str) -> None:
        write = Write(job_id, (ev.JobCancelled(how="queued"),), guard=JobGuard(), closes_for=TENANT)
        assert (await self.store.jobs.append(POOL, write, f"c{job_id}")).applied

    async def run(self, job_id: str, gpu_ms: int) -> None:
        """Run a job to its end."""
        started = ev.JobStarted(worker_id="w", offer_id="o", slot=0, device="d", attempt=1)
        events = (started, ev.JobDeviceReleased(gpu_ms=gpu_ms), ev.JobCompleted())
        write = Write(job_id, events, guard=JobGuard(), closes_for=TENANT)
        assert (await self.store.jobs.append(POOL, write, f"r{job_id}")).applied

    async def used(self) -> tuple[Look, dict[Key, Row]]:
        """What is counted, and what archive and log say up to there."""
        look = await self.store.usage.look_at_all(POOL)
        upto = entry_key(look.counted.upto)
        read = [each async for batch in self.archive.entries(POOL, None) for each in batch]
        return look, fold_all([e for e in read if isinstance(e, Entry) and entry_key(e.position) <= upto]).rows

    async def look(self) -> None:
        """Note what the log holds now."""
        for position, fields in await self.store.client.xrange(keys.log(POOL)):
            self.seen[position.decode()] = tuple(text for pair in fields.items() for text in pair)

    async def snapshot_here(self) -> None:
        """The scheduler has folded everything."""
        end = await self.store.end_of_log(POOL)
        await self.store.client.hset(keys.snapshot(POOL), "position", end)
        await self.store.client.xgroup_setid(keys.log(POOL), keys.GROUP_SCHEDULER, end)

    async def plan(self, most: int = 1_000) -> list[str]:
        """Read as the notifier; returns the positions."""
        found = [message.position for message in await self._group.read(most, None)]
        if found:
            await self.store.client.xack(keys.log(POOL), keys.GROUP_NOTIFIER, *found)
        return found

    async def archived(self) -> list[str]:
        """Every position in the archive, in order; the chain is checked on the way."""
        manifest, found, digest = await self.store.archive.manifest(POOL), list[str](), START_DIGEST
        for name in await self.archive.segments(POOL):
            lines = self.archive.shelf.lines(POOL, name)
            assert first_bad(lines, digest) is None, name
            found_here = self.archive.shelf.segment(POOL, name)
            assert found_here is not None
            digest = found_here.after
            for record in found_here.records:
                assert record.fields == self.seen[record.position]
                found.append(record.position)
        assert manifest is not None
        assert (manifest.digest, manifest.count) == (digest.hex(), len(found))
        return found

    async def everything(self) -> list[str]:
        """Every position that archive and log give together."""
        return [record.position async for batch in self.archive.read(POOL, None) for record in batch]


def in_order(positions: object) -> list[str]:
    assert isinstance(positions, dict | list | set)
    return sorted(positions, key=entry_key)
