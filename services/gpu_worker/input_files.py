"""The files that a job is given, brought into its scratch directory before author code runs.

Promises: fetched by the supervisor, never by the child; a stored file is copied, so that author code cannot change
it; what was fetched is within the limits of size, time and pixels and of the media type that the schema names; a file
that can never be taken is `input_rejected`, final, and one that could not be had this time `input_fetch_failed`. Texts
name the input and no part of its URL. Does not decode anything.
"""

import asyncio
import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from contracts.artifacts import Shelf, StoreAway, ending_of
from contracts.file_inputs import ARTIFACTS, FileInput, is_wanted
from contracts.outbound.terms import Bounds, Refused, Route, Unreachable
from contracts.picture_header import HEADER_BYTES, Picture, read_picture
from contracts.retry import Backoff
from contracts.threads import Threads
from contracts.webhook_target import AllowPrivate

if TYPE_CHECKING:
    from contracts.outbound.fetch import Fetcher

USER_AGENT = "headrace"
IN_FOLDER = ".in"
COPY_TRIES = 3
THREADS = 32
BACKOFF = Backoff(base_ms=200, cap_ms=2_000)
log = structlog.get_logger()


class InputFault(Exception):
    """Author code cannot begin; `retryable` as for the error it becomes."""

    def __init__(self, code: str, message: str, retryable: bool) -> None:
        super().__init__(message)
        self.code, self.retryable = code, retryable


@dataclass(frozen=True, slots=True)
class InputLimits:
    """Of one file, but for the time, which is for all files of a job, and `all_bytes`."""

    file_bytes: int
    all_bytes: int
    picture_pixels: int
    timeout_s: float
    allow_private: AllowPrivate = "none"
    route: Route = Route()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job's body asks for. `pools`: where the files with these ids lie."""

    key: str  # of the attempt
    fields: Mapping[str, Any]
    pools: Mapping[str, str]
    tenant_id: str
    now_ms: int


class InputFiles:
    """Brings files; any number of jobs at once."""

    def __init__(self, shelf: Shelf, limits: InputLimits) -> None:
        self._shelf, self._limits = shelf, limits
        self._fetcher: Fetcher | None = None
        self._threads = Threads(THREADS, "input-files")

    async def bring(
        self, wanted: Wanted, files: Mapping[str, FileInput], scratch: Path
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the fields with a path in the place of each file, and digests by JSON Pointer. Raises InputFault."""
        # Not a name that the next job of this directory has: a copy that hangs must not end among its files.
        folder = scratch / f"{IN_FOLDER}.{wanted.key}"
        fields = dict(wanted.fields)
        room = _Room(self._limits.all_bytes)
        if files and self._fetcher is None:
            self._fetcher = await self._import_fetcher()
        try:
            async with asyncio.timeout(self._limits.timeout_s + 1):  # what stands still elsewhere than in a fetch
                folder.mkdir()
                for name, each in files.items():
                    fields |= await self._fetched(name, each, fields.get(name), folder, room)
                if ARTIFACTS in fields and wanted.pools:
                    room.is_copying = True
                    fields[ARTIFACTS] = await self._copied(wanted, folder, room)
        except TimeoutError:
            if room.is_copying:  # our own store is to blame, not who named the files
                raise InputFault("input_fetch_failed", "the store of files does not answer", retryable=True) from None
            raise InputFault("input_rejected", "the files of this job took too long", retryable=False) from None
        except OSError as error:
            message = f"the files of this job could not be written: {error.strerror}"
            raise InputFault("input_fetch_failed", message, retryable=True) from None
        return fields, room.digests

    async def _import_fetcher(self) -> "Fetcher":
        """Not at the start: TLS and its certificates take a while to load, and many workers never fetch."""
        fetch = await asyncio.to_thread(import_module, "contracts.outbound.fetch")
        guard = await asyncio.to_thread(import_module, "contracts.outbound.guard")
        outbound = await asyncio.to_thread(guard.Outbound.by, self._limits.route)
        return self._fetcher or fetch.Fetcher(USER_AGENT, outbound)  # another job may have been here meanwhile

    async def _fetched(self, name: str, each: FileInput, value: Any, folder: Path, room: "_Room") -> dict[str, Any]:
        """Fetch the URLs of one input; returns the input with paths, or nothing if it was not given."""
        if each.many and isinstance(value, list):
            asked = [self._fetch(f"/input/{name}/{i}", url, each, folder, room) for i, url in enumerate(value)]
            return {name: [await one for one in asked]}
        if isinstance(value, str):
            return {name: await self._fetch(f"/input/{name}", value, each, folder, room)}
        return {}

    async def _fetch(self, pointer: str, url: str, each: FileInput, folder: Path, room: "_Room") -> str:
        limits = self._limits
        target = folder / f"{room.count():02d}"
        assert self._fetcher is not None
        bounds = Bounds(min(limits.file_bytes, room.left_bytes), limits.timeout_s, limits.allow_private)
        try:
            room.left_bytes -= await self._fetcher.fetch(url, target, bounds)
        except Refused as fault:
            raise InputFault("input_rejected", f"the file of {pointer} was refused: {fault}", retryable=False) from None
        except Unreachable as fault:
            message = f"the file of {pointer} could not be fetched: {fault}"
            raise InputFault("input_fetch_failed", message, retryable=True) from None
        picture, room.digests[pointer] = await asyncio.to_thread(_look_all_over, target)
        self._judge(pointer, picture, each.media_type)
        return str(_renamed(target, picture.ending if picture else ""))

    def _judge(self, pointer: str, picture: Picture | None, wanted: str | None) -> None:
        limit = self._limits.picture_pixels
        if not is_wanted(picture.media_type if picture else None, wanted):
            raise InputFault("input_rejected", f"the file of {pointer} is not of type {wanted}", retryable=False)
        if picture is not None and (picture.pixels is None or picture.pixels > limit):
            raise InputFault(
                "input_rejected", f"the picture of {pointer} has more than {limit} pixels", retryable=False
            )

    async def _copied(self, wanted: Wanted, folder: Path, room: "_Room") -> list[str]:
        """Copy the stored files with these ids."""
        paths = []
        for index, artifact_id in enumerate(wanted.fields[ARTIFACTS]):
            pointer = f"/input/{ARTIFACTS}/{index}"
            target = folder / f"{room.count():02d}"
            ending = await self._patiently(pointer, artifact_id, wanted, target, room)
            picture = await asyncio.to_thread(_look_at, target)
            self._judge(pointer, picture, None)
            paths.append(str(_renamed(target, ending)))
        return paths

    async def _patiently(self, pointer: str, artifact_id: str, wanted: Wanted, target: Path, room: "_Room") -> str:
        for number in range(1, COPY_TRIES + 1):
            try:
                return await self._threads.run(self._copy, pointer, artifact_id, wanted, target, room)
            except StoreAway as error:
                log.warning("input_not_copied", artifact=artifact_id, number=number, detail=error.strerror)
            await asyncio.sleep(BACKOFF.delay_ms(number, random.random()) / 1000)
        message = f"the file of {pointer} could not be read: the store of files does not answer"
        raise InputFault("input_fetch_failed", message, retryable=True)

    def _copy(self, pointer: str, artifact_id: str, wanted: Wanted, target: Path, room: "_Room") -> str:
        """Copy one stored file, checked against its record; returns its ending. Blocking. Raises StoreAway."""
        pool = wanted.pools.get(artifact_id, "")
        record = self._shelf.find(pool, artifact_id) if pool else None
        if record is None or record.tenant_id != wanted.tenant_id or record.expires_at_ms <= wanted.now_ms:
            message = f"the file of {pointer} is not there any more"
            raise InputFault("input_rejected", message, retryable=False)
        if record.bytes > min(self._limits.file_bytes, room.left_bytes):
            raise InputFault("input_rejected", f"the file of {pointer} is too large", retryable=False)
        content = self._shelf.open(pool, record)
        if content is None:
            raise StoreAway("a stored file is gone although its record is there")
        digest = hashlib.sha256()
        with content, target.open("wb") as file:
            while chunk := content.read():
                digest.update(chunk)
                file.write(chunk)
        if digest.hexdigest() != record.sha256:
            raise StoreAway("a stored file is not what its record says")
        room.left_bytes -= record.bytes
        room.digests[pointer] = record.sha256
        return ending_of(record.stored_as)


class _Room:
    """What one job's files may still take."""

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes, self._files = left_bytes, 0
        self.digests: dict[str, str] = {}
        self.is_copying = False

    def count(self) -> int:
        self._files += 1
        return self._files


def _look_at(path: Path) -> Picture | None:
    with path.open("rb") as file:
        return read_picture(file.read(HEADER_BYTES))


def _look_all_over(path: Path) -> tuple[Picture | None, str]:
    with path.open("rb") as file:
        return _look_at(path), hashlib.file_digest(file, "sha256").hexdigest()


def _renamed(path: Path, ending: str) -> Path:
    return path.rename(path.with_name(path.name + ending)) if ending else path
