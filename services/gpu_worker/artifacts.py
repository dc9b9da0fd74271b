"""Where finished files go: out of an attempt's scratch directory, under names of ours, with a record beside each.

Promises: what a record describes is complete and was hashed by us; a name, link or pipe made by author code
reaches nothing outside the scratch directory and no path outside the root. Does not look inside a file, and
does not promise that a local file survives the loss of its disk. Another store (S3) takes the place of
LocalArtifacts behind put_file.
"""

import errno
import hashlib
import mimetypes
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import orjson

OUT_FOLDER = ".out"  # as in child/job.py
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_CHUNK_BYTES = 1 << 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class ArtifactRejected(Exception):
    """The file cannot be taken as it is: final for this attempt, code `artifact_rejected`."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a file before it is stored; lies beside it as `<id>.json`, with `bytes` and `sha256`."""

    id: str
    pool: str
    job: str
    name: str  # the author's, for people; never part of a path
    kind: str
    variant: str
    width: int | None
    height: int | None
    created_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A file that is safely in the store."""

    record: Record
    mime: str
    bytes: int
    sha256: str


class ArtifactStore(Protocol):
    """Takes files; blocking, called in a thread."""

    def put_file(self, scratch: Path, file: str, record: Record, limit_bytes: int) -> Stored: ...


class LocalArtifacts:
    """`<root>/<pool>/<job>/<id>` and `<id>.json`, moved in by rename when scratch lies on the same file system."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put_file(self, scratch: Path, file: str, record: Record, limit_bytes: int) -> Stored:
        """Move one file in. Raises ArtifactRejected, or OSError when the store cannot take it now."""
        folder = self._folder(record)
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{record.id}.part"
        with _opened(scratch, file) as source:
            size_bytes = os.fstat(source.fileno()).st_size
            if size_bytes > limit_bytes:
                raise ArtifactRejected(f"{record.name} has {size_bytes} bytes, {limit_bytes} are left")
            _move(scratch / OUT_FOLDER / file, source, part)
        stored = Stored(record, mime_of(record.name), size_bytes, _sha256(part))
        os.replace(part, folder / record.id)
        _write_record(folder, stored)  # last: a file without a record is not there yet
        return stored

    def _folder(self, record: Record) -> Path:
        for name in (record.pool, record.job, record.id):
            if not _SAFE_NAME.fullmatch(name):
                raise ArtifactRejected(f"{name[:40]!r} cannot be part of a path")
        return self._root / record.pool / record.job


def mime_of(name: str) -> str:
    """Return the type that the name's ending claims; nobody has looked inside.

    >>> mime_of("a.png"), mime_of("b.webp"), mime_of("c")
    ('image/png', 'image/webp', 'application/octet-stream')
    """
    return mimetypes.guess_type(name, strict=False)[0] or "application/octet-stream"


@contextmanager
def _opened(scratch: Path, file: str) -> Iterator[BinaryIO]:
    """Open a regular file that the child handed over, following no link on the way."""
    try:
        folder_fd = os.open(scratch / OUT_FOLDER, _OPEN | os.O_DIRECTORY)
        try:
            # Not blocking: author code may have put a pipe in the file's place.
            fd = os.open(file, _OPEN | os.O_NONBLOCK, dir_fd=folder_fd)
        finally:
            os.close(folder_fd)
    except OSError as error:
        raise ArtifactRejected(f"file {file} cannot be opened: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ArtifactRejected(f"file {file} is not a regular file")
    with os.fdopen(fd, "rb") as source:
        yield source


def _move(path: Path, source: BinaryIO, target: Path) -> None:
    try:
        os.replace(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with target.open("wb") as copy:
            shutil.copyfileobj(source, copy, _CHUNK_BYTES)
        return
    if os.lstat(target).st_ino != os.fstat(source.fileno()).st_ino:
        target.unlink()
        raise ArtifactRejected("the file was exchanged while it was taken")
    os.chmod(target, 0o644)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_record(folder: Path, stored: Stored) -> None:
    facts = {**asdict(stored.record), "mime": stored.mime, "bytes": stored.bytes, "sha256": stored.sha256}
    part = folder / f".{stored.record.id}.json.part"
    part.write_bytes(orjson.dumps(facts))
    os.replace(part, folder / f"{stored.record.id}.json")
