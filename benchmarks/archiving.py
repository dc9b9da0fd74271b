"""The archive: sealing against raw XRANGE and zstd of the same entries, reading it against raw XRANGE and orjson.

Sealing is all of it: reading the log, chain, compression, fsync, manifest, and asking what may be trimmed.
"""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from itertools import chain
from pathlib import Path

import orjson
import structlog
import uvloop
import zstandard

from benchmarks.figures import Row, high, ratios, spread
from benchmarks.rig import own_store
from contracts import events as ev
from contracts import ids
from contracts.archive import Archive
from contracts.artifacts import Shelf
from contracts.artifacts.local import LocalObjects
from contracts.store import Store, keys
from contracts.store.records import RecordReader
from contracts.wire import wire_type
from services.archivist.config import ArchivistConfig, Pace
from services.archivist.pool import PoolArchivist

POOL = "default"
ENTRIES, ROUNDS, PIPED = 30_000, 5, 1_000
SEGMENT = 10_000
LENGTH = 330  # of names and values
LEVEL = 3
BAR = 0.5
CONFIG = ArchivistConfig(Pace(0, SEGMENT, 0))


def measure() -> list[Row]:
    """Interleave rounds of both sides; the first of each is a warm-up."""
    with own_store() as (url, folder):
        return uvloop.run(_measure(url, folder / "bench-archive"))


async def _measure(url: str, folder: Path) -> list[Row]:
    store = Store(url)
    await store.directory.open()
    await store.open_pool(POOL)
    await _write(store, ENTRIES)
    await asyncio.sleep(0.01)  # what is sealed must be of an earlier millisecond than the look
    shelf = Shelf(LocalObjects(folder / "artifacts"))
    sides: dict[str, tuple[list[float], list[float]]] = {"seal": ([], []), "read": ([], [])}
    for number in range(ROUNDS + 1):
        shutil.rmtree(folder, ignore_errors=True)
        await store.client.delete(keys.archive(POOL))
        await store.client.hdel(keys.meta(POOL), "trimmed")
        archive = Archive(store, LocalObjects(folder))
        steps = (
            ("seal", 0, lambda archive=archive: _seal(store, archive, shelf)),
            ("seal", 1, lambda: _raw_and_zstd(store)),
            ("read", 0, lambda archive=archive: _read(archive)),
            ("read", 1, lambda: _raw_and_orjson(store)),
        )
        for name, side, call in steps:
            rate = await _rate(call)
            if number:
                sides[name][side].append(rate)
    size = _bytes(folder)
    await store.aclose()
    what = f"sealing entries of {LENGTH} bytes into {size / ENTRIES:.0f}, per CPU second"
    return [
        _row(what, sides["seal"], "and zstd"),
        _row("reading the archive, decoded, per CPU second", sides["read"], "and orjson", BAR),
    ]


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.ndjson.zst"))


def _row(what: str, rates: tuple[list[float], list[float]], baseline: str, bar: float | None = None) -> Row:
    ratio = ratios(*rates)
    ours, plain = (high(spread(side)) for side in rates)
    told, holds = (f"at least {bar}", ratio.mid >= bar) if bar is not None else ("", None)
    return Row(what, ours, f"{plain} raw XRANGE {baseline}", high(ratio, digits=2), told, holds)


async def _rate(call: Callable[[], Awaitable[int]]) -> float:
    begun_s = time.process_time()
    count = await call()
    assert count >= ENTRIES, count
    return count / (time.process_time() - begun_s)


async def _write(store: Store, count: int) -> None:
    event = ev.JobProgress(progress=50, phase="denoising", step=12, total_steps=24)
    padding = "x" * 120
    pipe = store.client.pipeline(transaction=False)
    for number in range(count):
        data = orjson.dumps(orjson.loads(event.to_json()) | {"note": f"{number}{padding}"})
        job_id = ids.mint_job_id(1_764_457_200_000 + number, number * 7919 % 2**40, "aa")
        fields = {"t": wire_type(event), "j": job_id, "n": 2, "f": 1, "p": f"1764457200000-{number}", "d": data}
        pipe.execute_command("XADD", keys.log(POOL), "*", *chain.from_iterable(fields.items()))
        if number % PIPED == PIPED - 1:
            await pipe.execute()
    await pipe.execute()


async def _seal(store: Store, archive: Archive, shelf: Shelf) -> int:
    await PoolArchivist(store, archive, shelf, "here", POOL, CONFIG, structlog.get_logger()).run_once()
    manifest = await store.archive.manifest(POOL)
    assert manifest is not None
    await store.client.hset(keys.meta(POOL), "trimmed", manifest.upto)  # so that it is read and not the log
    return manifest.count


async def _raw_and_zstd(store: Store) -> int:
    reader, at, count = RecordReader(store.channel()), "0-0", 0
    while records := (await reader.after(POOL, at, SEGMENT)).records:
        lines = [orjson.dumps([record.position, *[text.decode() for text in record.fields]]) for record in records]
        zstandard.ZstdCompressor(level=LEVEL).compress(b"\n".join(lines))
        at, count = records[-1].position, count + len(records)
    return count


async def _read(archive: Archive) -> int:
    count = 0
    async for batch in archive.entries(POOL, None, (await archive.segments(POOL))[-1].last):
        for entry in batch:
            orjson.loads(entry.data)  # type: ignore[union-attr]
        count += len(batch)
    return count


async def _raw_and_orjson(store: Store) -> int:
    reader, at, count = RecordReader(store.channel()), "0-0", 0
    while count < ENTRIES:
        records = (await reader.after(POOL, at, 1_000)).records
        for record in records:
            orjson.loads(record.fields[-1])
        at, count = records[-1].position, count + len(records)
    return count


if __name__ == "__main__":
    for row in measure():
        print(row)
