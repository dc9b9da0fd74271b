"""Where finished files go: out of an attempt's scratch directory, under ids of ours, with a record beside each.

Promises: what a record describes is complete and was hashed by us; a name, link or pipe made by author code reaches
nothing outside the scratch directory and no path outside the root. Does not look inside a file, and does not promise
that a local file survives the loss of its disk. Another store (S3) takes the place of LocalArtifacts behind put_file.
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
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import orjson

from contracts.events import ArtifactRef

OUT_FOLDER = ".out"  # as in child/job.py
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_SAFE_ENDING = re.compile(r"\.[A-Za-z0-9]{1,8}")
_CHUNK_BYTES = 1 << 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class ArtifactRejected(Exception):
    """The file cannot be taken as it is: final for this job, code `artifact_rejected`."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What is known of a file before it is stored."""

    id: str
    pool: str
    job_id: str
    tenant_id: str
    name: str  # the author's, for people; only its ending becomes part of a path
    kind: str
    variant: str
    width: int | None
    height: int | None
    created_ms: int
    expires_at_ms: int


class ArtifactStore(Protocol):
    """Takes files; blocking, called in a thread. A repeat with the same id replaces the file."""

    def put_file(self, scratch: Path, file: str, upload: Upload, limit_bytes: int) -> ArtifactRef: ...


class LocalArtifacts:
    """`<root>/<pool>/<job>/<id><ending>` and `<id>.json`, moved in when scratch lies on the same file system."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put_file(self, scratch: Path, file: str, upload: Upload, limit_bytes: int) -> ArtifactRef:
        """Move one file in. Raises ArtifactRejected, or OSError when the store cannot take it now."""
        folder = self._folder(upload)
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{upload.id}.part"
        with _opened(scratch, file) as source:
            size_bytes = os.fstat(source.fileno()).st_size
            if size_bytes > limit_bytes:
                raise ArtifactRejected(f"{upload.name} has {size_bytes} bytes, {limit_bytes} are left")
            _move(scratch / OUT_FOLDER / file, source, part)
        reference = _describe(upload, size_bytes, _hash_and_sync(part))
        name = upload.id + ending_of(upload.name)
        os.replace(part, folder / name)
        _write_record(folder, upload, reference, name)  # last: a file without a record is not there yet
        return reference

    def _folder(self, upload: Upload) -> Path:
        for name in (upload.pool, upload.job_id, upload.id):
            if not _SAFE_NAME.fullmatch(name):
                raise ArtifactRejected(f"{name[:40]!r} cannot be part of a path")
        return self._root / upload.pool / upload.job_id


def mime_of(name: str) -> str:
    """Return the type that the name's ending claims; nobody has looked inside.

    >>> mime_of("a.png"), mime_of("b.webp"), mime_of("c")
    ('image/png', 'image/webp', 'application/octet-stream')
    """
    return mimetypes.guess_type(name, strict=False)[0] or "application/octet-stream"


def ending_of(name: str) -> str:
    """Return the ending of an author's name if it is a harmless one.

    >>> ending_of("a/b.PNG"), ending_of("x.tar.gz"), ending_of("y./../z")
    ('.png', '.gz', '')
    """
    ending = os.path.splitext(name)[1]
    return ending.lower() if _SAFE_ENDING.fullmatch(ending) else ""


def size_of(scratch: Path, file: str) -> int:
    """Return the size of a file that was handed over, following no link; 0 if it is not there."""
    try:
        return os.lstat(scratch / OUT_FOLDER / file).st_size
    except OSError:
        return 0


def _describe(upload: Upload, size_bytes: int, sha256: str) -> ArtifactRef:
    return ArtifactRef(
        id=upload.id,
        kind=upload.kind,
        variant=upload.variant,
        mime=mime_of(upload.name),
        bytes=size_bytes,
        sha256=sha256,
        path=f"/v1/artifacts/{upload.id}/content",
        expires_at_ms=upload.expires_at_ms,
        width=upload.width,
        height=upload.height,
    )


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


def _hash_and_sync(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        os.fsync(file.fileno())
    return digest.hexdigest()


def _write_record(folder: Path, upload: Upload, reference: ArtifactRef, stored_as: str) -> None:
    facts = reference.model_dump(by_alias=True) | {
        "tenantId": upload.tenant_id,
        "createdMs": upload.created_ms,
        "fileName": upload.name,  # what a download is called
        "storedAs": stored_as,
    }
    part = folder / f".{upload.id}.json.part"
    with part.open("wb") as file:
        file.write(orjson.dumps(facts))
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, folder / f"{upload.id}.json")
