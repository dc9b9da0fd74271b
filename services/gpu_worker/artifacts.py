"""How finished files leave an attempt's scratch directory for the store.

Promises: a name, link or pipe made by author code reaches nothing outside the scratch directory and no path outside the
store; once a file is taken, a failed put can be repeated. Does not look inside a file.
"""

import asyncio
import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from contracts.artifacts import Shelf, Upload, record_key
from contracts.events import ArtifactRef
from contracts.threads import Threads

OUT_FOLDER = ".out"  # as in child/job.py
_CHUNK_BYTES = 1 << 20
THREADS = 32  # a store that hangs holds these and nothing else of the worker
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class ArtifactRejected(Exception):
    """The file cannot be taken as it is: final for this job, code `artifact_rejected`."""


class Intake:
    """Takes files over into a folder of its own, on the file system of the scratch directories, and stores them."""

    def __init__(self, shelf: Shelf, folder: Path) -> None:
        self._shelf, self._folder = shelf, folder
        self._threads = Threads(THREADS, "files")

    async def store(self, scratch: Path, file: str, upload: Upload, limit_bytes: int) -> ArtifactRef:
        """Store one file. Raises ArtifactRejected, or OSError when the store cannot take it now: repeat."""
        return await self._threads.run(self.put, scratch, file, upload, limit_bytes)

    async def store_copy(self, candidates: Sequence[Path], upload: Upload) -> ArtifactRef:
        """Store a copy of the first of these files of ours that is there. Raises OSError."""
        return await self._threads.run(self.copy, candidates, upload)

    async def discard(self, artifact_id: str) -> None:
        """Remove what was taken over of a file that is not tried again."""
        with suppress(OSError):  # not in `_threads`, in which a store that hangs may hold every place
            await asyncio.to_thread((self._folder / artifact_id).unlink, missing_ok=True)

    def put(self, scratch: Path, file: str, upload: Upload, limit_bytes: int) -> ArtifactRef:
        """As `store`; blocking."""
        try:
            record_key(upload.pool, upload.job_id, upload.id)  # checks that they are names and nothing else
        except ValueError as error:
            raise ArtifactRejected(str(error)) from None
        taken = self._folder / upload.id
        self._folder.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(scratch / OUT_FOLDER / file) or not taken.exists():  # else taken by a put that failed
            _take(scratch, file, taken, limit_bytes, upload.name)
        stored = self._shelf.put(upload, taken)
        taken.unlink(missing_ok=True)
        return stored

    def copy(self, candidates: Sequence[Path], upload: Upload) -> ArtifactRef:
        """As `store_copy`; blocking."""
        self._folder.mkdir(parents=True, exist_ok=True)
        taken = self._folder / upload.id
        try:
            try:
                shutil.copyfile(candidates[0], taken)
            except FileNotFoundError:
                shutil.copyfile(candidates[1], taken)
            return self._shelf.put(upload, taken, durable=False)
        finally:
            taken.unlink(missing_ok=True)


def size_of(scratch: Path, file: str) -> int:
    """Return the size of a file that was handed over, following no link; 0 if it is not there."""
    try:
        return os.lstat(scratch / OUT_FOLDER / file).st_size
    except OSError:
        return 0


def _take(scratch: Path, file: str, target: Path, limit_bytes: int, name: str) -> None:
    with _opened(scratch, file) as source:
        size_bytes = os.fstat(source.fileno()).st_size
        if size_bytes > limit_bytes:
            raise ArtifactRejected(f"{name} has {size_bytes} bytes, {limit_bytes} are left")
        _move(scratch / OUT_FOLDER / file, source, target)


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
