"""Holds what a reproduction made against what the first job made.

Promises: equal digests are equal files, and nothing is read; else both files are fetched and compared in a process of
their own, with bounds on bytes and time. What cannot be compared (gone, too large) has no distance, and the job
completes all the same. The first job is read, never written.
"""

import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from contracts.artifacts import Shelf
from contracts.events import ArtifactRef, Manifest, Reproduction
from contracts.ids import BadId
from contracts.reproduction import PinnedFile, Pins, result_distance, verdict
from contracts.threads import Threads

MOST_BYTES = 256 << 20  # of a file
COMPARE_S = 30.0  # of all files of a job
THREADS = 8
_SCRIPT = Path(__file__).with_name("picture_distance.py")
log = structlog.get_logger()


class Comparing:
    """One for each supervisor."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf, self._threads = shelf, Threads(THREADS, "comparing")

    async def judge(
        self, pins: Pins, manifest: Manifest, pool: str, stored: Sequence[ArtifactRef], result: Mapping[str, Any] | None
    ) -> Reproduction:  # fmt: skip
        """Return how near the new files and the new result are."""
        pairs = list(zip(pins.artifacts, stored, strict=False))
        distances: list[float | None] = [] if len(pins.artifacts) == len(stored) else [1.0]
        try:
            async with asyncio.timeout(COMPARE_S):
                for first, second in pairs:
                    distances.append(await self._distance(pins.pool, first, pool, second))
        except TimeoutError:
            distances.append(None)
        if pins.result is not None:
            distances.append(result_distance(pins.result, dict(result or {})))
        is_equal = distances == [0.0] * len(distances) and all(one.sha256 == other.sha256 for one, other in pairs)
        return verdict(pins, manifest, distances, is_equal=is_equal)

    async def _distance(self, pool: str, first: PinnedFile, new_pool: str, second: ArtifactRef) -> float | None:
        if first.sha256 == second.sha256:
            return 0.0
        try:
            with tempfile.TemporaryDirectory(prefix="headrace-compare-") as folder:
                paths = [Path(folder) / name for name in ("first", "second")]
                for path, (where, file_id) in zip(paths, ((pool, first.id), (new_pool, second.id)), strict=True):
                    if not await self._threads.run(self._fetch, where, file_id, path):
                        return None
                return await _measure(*paths)
        except (OSError, ValueError, BadId) as error:
            log.warning("files_not_compared", first=first.id, second=second.id, detail=type(error).__name__)
            return None

    def _fetch(self, pool: str, file_id: str, target: Path) -> bool:
        """Copy a stored file; returns whether it is there and not too large. Blocking. Raises StoreAway."""
        record = self._shelf.find(pool, file_id)
        content = self._shelf.open(pool, record) if record is not None and record.bytes <= MOST_BYTES else None
        if content is None:
            return False
        with content, target.open("wb") as file:
            while chunk := content.read():
                file.write(chunk)
        return True


async def _measure(first: Path, second: Path) -> float | None:
    command = (sys.executable, "-I", str(_SCRIPT), str(first), str(second))
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdin=nothing, stdout=pipe, stderr=nothing, env={})
    try:
        told, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return float(told) if process.returncode == 0 else None
