"""Objects in a directory: of this host, or one that all hosts share.

Promises: what is put durably is on the disk (fsync) before its name appears, and its name when the call returns; no
link in an object's place is followed. What a killed process left half put is listed, and can be removed, once it is
LEFT_S old. Does not promise that a file survives the loss of its disk.
"""

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, Self

from contracts.artifacts.objects import CHUNK_BYTES, Content, StoreAway, Stored

LEFT_S = 3_600.0
_PART = ".part"


class LocalObjects:
    """`<root>/<key>`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put_file(self, key: str, source: Path | bytes, mime: str, durable: bool = True) -> None:
        target = self._root / key
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex}{_PART}")  # two may put the same key at once
        try:
            new = _make_folder(target.parent)
            _place(source, part)
            if durable:
                _sync(part)
            os.replace(part, target)
            for folder in (target.parent, *(each.parent for each in new)) if durable else ():
                _sync(folder)
        except OSError as error:
            raise StoreAway(f"the directory of stored files cannot be written: {error.strerror}") from None

    def get(self, key: str, start: int = 0, end: int | None = None) -> Content | None:
        try:
            fd = os.open(self._root / key, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise StoreAway(f"a stored file cannot be read: {error.strerror}") from None
        return _LocalContent(os.fdopen(fd, "rb", buffering=0), start, end)

    def sign(self, method: Literal["GET", "HEAD", "PUT"], key: str, seconds: int) -> str | None:
        return None

    def delete(self, key: str) -> None:
        try:
            (self._root / key).unlink(missing_ok=True)
        except OSError as error:
            raise StoreAway(f"a stored file cannot be removed: {error.strerror}") from None

    def list(self, prefix: str) -> Iterator[Stored]:
        for folder, _, names in os.walk(self._root / prefix):
            for name in names:
                path = Path(folder, name)
                if (status := _status(path)) is not None and not _is_being_put(name, status):
                    key = path.relative_to(self._root).as_posix()
                    yield Stored(key, status.st_size, status.st_mtime_ns // 1_000_000)


class _LocalContent:
    def __init__(self, file: BinaryIO, start: int, end: int | None) -> None:
        status = os.fstat(file.fileno())
        self.size_bytes, self.version = status.st_size, f"{status.st_mtime_ns:x}-{status.st_size:x}"
        self._file, self._at = file, start
        self._end = self.size_bytes if end is None else min(end, self.size_bytes)

    def read(self) -> bytes:
        wanted = min(CHUNK_BYTES, self._end - self._at)
        try:
            chunk = os.pread(self._file.fileno(), wanted, self._at) if wanted > 0 else b""
        except OSError as error:
            raise StoreAway(f"a stored file cannot be read: {error.strerror}") from None
        if wanted > 0 and not chunk:
            raise StoreAway("a stored file became shorter while it was read")
        self._at += len(chunk)
        return chunk

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _place(source: Path | bytes, part: Path) -> None:
    """Bring the content to `part`; a file on the same file system is moved."""
    if isinstance(source, Path):
        try:
            os.replace(source, part)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            shutil.copyfile(source, part)
    else:
        part.write_bytes(source)


def _make_folder(folder: Path) -> list[Path]:
    """Make a folder, and return those that were not there before."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return new


def _sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _is_being_put(name: str, status: os.stat_result) -> bool:
    return name.endswith(_PART) and time.time() - status.st_mtime < LEFT_S


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None
