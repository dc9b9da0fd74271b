"""A pool's log that is written, sealed and trimmed by hand."""

from pathlib import Path

from contracts import events as ev
from contracts.archive import Archive, SegmentShelf, seal
from contracts.artifacts.local import LocalObjects
from contracts.store import Store, keys
from contracts.store.records import Record, RecordReader

POOL = "default"
TOKEN = "archivist"
PLACE = "here"


class Log:
    """Writes facts, and does by hand what the archivist does."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.objects = LocalObjects(folder)
        self.shelf = SegmentShelf(self.objects)
        self.archive = Archive(store, self.objects)
        self._reader = RecordReader(store.channel())
        self.written: list[str] = []

    async def write(self, count: int = 1) -> None:
        for _ in range(count):
            number = len(self.written)
            fact = ev.ModelProfiled(model=f"m{number}@1", bytes=number, source="audit")
            reply = await self.store.note(POOL, "m@1", fact, f"w{number}")
            self.written.append(reply.position)

    async def seal(self, count: int, *, say: bool = True) -> None:
        """Seal the next entries; without `say` as an archivist that dies before it says so."""
        manifest = (await self.store.archive.lead(POOL, TOKEN, 60_000, PLACE)).manifest
        assert manifest is not None
        records = (await self._reader.after(POOL, manifest.upto, count)).records
        if not records:
            return
        segment, packed = seal(POOL, manifest.epoch, bytes.fromhex(manifest.digest), records)
        self.shelf.put(segment, packed)
        if say:
            upto, digest = records[-1].position, segment.after.hex()
            reply = await self.store.archive.seal(POOL, TOKEN, manifest.upto, upto, digest, len(records), [])
            assert reply.applied

    async def snapshot_here(self) -> None:
        """The scheduler's snapshot and the groups have everything."""
        end = await self.store.end_of_log(POOL)
        await self.store.client.hset(keys.snapshot(POOL), "position", end)
        for group in keys.LOG_GROUPS:
            await self.store.client.xgroup_setid(keys.log(POOL), group, end)

    async def trim(self) -> str:
        """Trim what may be trimmed, to the last entry (the store trims whole nodes by itself)."""
        trimmed = await self.store.archive.trim(POOL, TOKEN)
        assert trimmed is not None
        await self.store.client.xtrim(keys.log(POOL), minid=trimmed[0], approximate=False)
        return trimmed[0]

    async def read(self, after: str | None = "0-0", until: str | None = None, count: int = 7) -> list[Record]:
        return [record async for batch in self.archive.read(POOL, after, until, count) for record in batch]
