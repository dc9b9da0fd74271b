"""Files on their way in: announced, sent to where the store wants them, then checked and kept under an artifact's id.

Promises: what is kept has the size, the hash and the type that were announced; its bytes were hashed by us after the
last moment at which the sender could change them, since they are copied out of the sender's reach first; keeping twice
is keeping once. What is never completed is swept away, also what a killed process left of it on this host. Blocking
throughout: call it in a thread. Does not promise that two processes of ours keep the same bytes if both are asked to
complete at the very moment at which the sender, who announced no hash, exchanges them.
"""

import hashlib
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import structlog

from contracts.artifacts import INCOMING, ArtifactRecord, Objects, Shelf, Upload, read_note, write_note
from contracts.events.root import Part
from contracts.file_inputs import is_wanted
from contracts.ids import job_of
from contracts.picture_header import HEADER_BYTES, read_picture
from contracts.telemetry import Logger
from services.ingest.edge.problems import Fault, Problem

_KINDS = ("image", "video", "audio")
log: Logger = structlog.get_logger(service="ingest")


class Announced(Part):
    """What a caller said of a file before sending it."""

    id: str
    tenant_id: str
    file_name: str
    content_type: str
    bytes: int
    sha256: str | None = None
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class UploadRules:
    """`keep_ms`: how long a completed upload is kept. `folder`: on this host, for bytes being checked."""

    picture_pixels: int
    keep_ms: int
    folder: Path


class Uploads:
    """See the module."""

    def __init__(self, shelf: Shelf, rules: UploadRules) -> None:
        self._shelf, self._rules = shelf, rules

    @property
    def _objects(self) -> Objects:
        return self._shelf.objects

    def announce(self, announced: Announced, seconds: int) -> str | None:
        """Write it down; returns where to PUT the bytes, None when we take them ourselves. Raises StoreAway."""
        write_note(self._objects, _facts_key(announced.id), announced)
        return self._objects.sign("PUT", _bytes_key(announced.id), seconds)

    def find(self, upload_id: str) -> Announced | None:
        """Return what was announced under this id and is not completed. Raises StoreAway."""
        return read_note(self._objects, _facts_key(upload_id), Announced)

    def take(self, upload_id: str, source: Path) -> None:
        """Take bytes that were sent to us. Raises StoreAway."""
        self._objects.put_file(_bytes_key(upload_id), source, "application/octet-stream")

    def complete(self, announced: Announced, pool: str, now_ms: int) -> ArtifactRecord:
        """Check what was sent and keep it; what was kept meanwhile stays as it is. Raises Problem, StoreAway."""
        kept = self._shelf.find(pool, announced.id)
        if kept is not None:
            self.forget(announced.id)
            return kept
        self._rules.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._rules.folder) as folder:
            copy = Path(folder, "copy")
            self._fetch(announced, copy)
            faults = _faults(announced, copy, self._rules.picture_pixels)
            if faults:
                self.forget(announced.id)
                raise Problem("upload_rejected", "The file is not what was announced; announce it again", faults)
            self._shelf.put(self._upload(announced, pool, now_ms), copy)
        self.forget(announced.id)
        record = self._shelf.find(pool, announced.id)
        assert record is not None
        return record

    def forget(self, upload_id: str) -> None:
        """Remove what was announced and sent. Raises StoreAway."""
        for key in (_bytes_key(upload_id), _facts_key(upload_id)):
            self._objects.delete(key)

    def sweep(self, before_ms: int) -> int:
        """Remove what was announced or sent before this time; returns how many objects. Raises StoreAway."""
        for folder in self._rules.folder.iterdir() if self._rules.folder.exists() else ():
            if _touched_ms(folder) < before_ms:
                shutil.rmtree(folder, ignore_errors=True)
        old = [each.key for each in self._objects.list(INCOMING) if each.modified_ms < before_ms]
        for key in old:
            self._objects.delete(key)
        return len(old)

    def _fetch(self, announced: Announced, copy: Path) -> None:
        content = self._objects.get(_bytes_key(announced.id))
        if content is None:
            raise Problem("upload_incomplete", "PUT the file to the URL of the upload first")
        with content, copy.open("wb") as file:
            if content.size_bytes <= announced.bytes:  # else it is refused by its size, and need not be read
                while chunk := content.read():
                    file.write(chunk)
            else:
                file.truncate(content.size_bytes)  # takes no room

    def _upload(self, announced: Announced, pool: str, now_ms: int) -> Upload:
        major = announced.content_type.partition("/")[0]
        return Upload(
            id=announced.id,
            pool=pool,
            job_id=job_of(announced.id),
            tenant_id=announced.tenant_id,
            name=announced.file_name,
            kind=major if major in _KINDS else "file",
            variant="original",
            width=None,
            height=None,
            created_ms=now_ms,
            expires_at_ms=now_ms + self._rules.keep_ms,
            mime=announced.content_type,
        )


def _faults(announced: Announced, copy: Path, most_pixels: int) -> tuple[Fault, ...]:
    size_bytes = copy.stat().st_size
    if size_bytes != announced.bytes:
        return (Fault("/bytes", "mismatch", f"{size_bytes} bytes were sent"),)
    with copy.open("rb") as file:
        picture = read_picture(file.read(HEADER_BYTES))
        file.seek(0)
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    faults = []
    if announced.sha256 is not None and announced.sha256 != sha256:
        faults.append(Fault("/sha256", "mismatch", "other bytes were sent"))
    claimed = announced.content_type
    if (picture is not None or is_wanted(claimed, "image/*")) and (picture is None or picture.media_type != claimed):
        seen = "no picture of a known kind" if picture is None else picture.media_type
        faults.append(Fault("/contentType", "mismatch", f"the first bytes are those of {seen}"))
    if picture is not None and (picture.pixels is None or picture.pixels > most_pixels):
        faults.append(Fault("", "too_large", f"a picture may have {most_pixels} pixels"))
    return tuple(faults)


def _touched_ms(folder: Path) -> int:
    """Return when a file of a folder was last written to: one may be coming in for hours."""
    try:
        return max(each.stat().st_mtime_ns for each in (folder, *folder.iterdir())) // 1_000_000
    except OSError:  # it went away meanwhile
        return sys.maxsize


def _facts_key(upload_id: str) -> str:
    return f"{INCOMING}{upload_id}.json"


def _bytes_key(upload_id: str) -> str:
    return f"{INCOMING}{upload_id}"
