"""Files under ids of ours in a store of objects, each with a record beside it.

Promises: what a record describes is complete and was hashed by us; a repeat with the same id replaces file and record,
so that finishing twice is finishing once; of an erased job nothing stays, also not what is put while it is erased, or
after. Does not look inside a file and does not judge who may read it.
"""

import hashlib
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Literal

from contracts.artifacts.notes import read_note, write_note
from contracts.artifacts.objects import Content, Objects
from contracts.artifacts.records import (
    ArtifactRecord,
    ErasedFolder,
    Upload,
    content_key,
    describe,
    erased_key,
    folder_key,
    record_key,
    recorded,
)
from contracts.events import ArtifactRef
from contracts.ids import job_of


class Shelf:
    """See the module."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    def put(self, upload: Upload, source: Path, durable: bool = True) -> ArtifactRef:
        """Store a file, which may be moved. Raises StoreAway, or ValueError for an id that cannot be a key."""
        record_at = record_key(upload.pool, upload.job_id, upload.id)
        with source.open("rb") as file:
            size_bytes = file.seek(0, 2)
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        record = describe(upload, size_bytes, sha256)
        content_at = content_key(upload.pool, upload.job_id, record.stored_as)
        self.objects.put_file(content_at, source, record.mime, durable)
        # last: a file without a record is not there yet
        write_note(self.objects, record_at, record, durable)
        if self.erased(upload.pool, upload.job_id) is not None:  # after the put: erasing says so first, and looks then
            self._remove((record_at, content_at))
        return ArtifactRef.model_validate(record.model_dump())

    def find(self, pool: str, artifact_id: str) -> ArtifactRecord | None:
        """Return the record of a file; None when there is none, or none that can be read. Raises StoreAway."""
        return read_note(self.objects, record_key(pool, job_of(artifact_id), artifact_id), ArtifactRecord)

    def erased(self, pool: str, job_id: str) -> ErasedFolder | None:
        """Return what is said of an erased job; None for any other. Raises StoreAway."""
        return read_note(self.objects, erased_key(pool, job_id), ErasedFolder)

    def doom(self, pool: str, job_id: str, tenant_id: str, now_ms: int) -> list[str]:
        """Keep late files of a job away; returns the ids of those there are, for `erase`. Raises StoreAway."""
        if self.erased(pool, job_id) is None:
            write_note(self.objects, erased_key(pool, job_id), ErasedFolder(tenant_id=tenant_id, erased_ms=now_ms))
        return [artifact_id for key in self._doomed(pool, job_id) if (artifact_id := recorded(key))]

    def erase(self, pool: str, job_id: str) -> None:
        """Remove all files of a doomed job. Raises StoreAway."""
        self._remove(self._doomed(pool, job_id))

    def _doomed(self, pool: str, job_id: str) -> list[str]:
        mark = erased_key(pool, job_id)
        return [each.key for each in self.objects.list(folder_key(pool, job_id)) if each.key != mark]

    def outlived(self, pool: str, before_ms: int, now_ms: int, most: int) -> list[ArtifactRecord]:
        """Return up to `most` files whose time is over, looking at what lies here since before `before_ms`.

        What such a folder holds without a record goes at once: a killed process left it, or its job is erased.
        """
        expired: list[ArtifactRecord] = []
        for folder, listed in groupby(self.objects.list(f"{pool}/"), key=lambda each: each.key.rpartition("/")[0]):
            if len(expired) >= most:
                break
            objects = list(listed)
            if max(each.modified_ms for each in objects) < before_ms:
                expired += self._outlived(folder, [each.key for each in objects], now_ms)
        return expired[:most]

    def _outlived(self, folder: str, found: list[str], now_ms: int) -> list[ArtifactRecord]:
        records = {key: read_note(self.objects, key, ArtifactRecord) for key in found if recorded(key)}
        kept = {key for key, record in records.items() if record is not None}
        kept |= {f"{folder}/{record.stored_as}" for record in records.values() if record is not None}
        self._remove(key for key in found if key not in kept)
        return [record for record in records.values() if record is not None and record.expires_at_ms <= now_ms]

    def remove(self, pool: str, record: ArtifactRecord) -> None:
        """Remove a file, and its record last. Raises StoreAway."""
        content = _key_of(pool, record)
        if content is not None:
            self.objects.delete(content)
        self.objects.delete(record_key(pool, job_of(record.id), record.id))

    def _remove(self, found: Iterable[str]) -> None:
        for key in found:
            self.objects.delete(key)

    def open(self, pool: str, record: ArtifactRecord, start: int = 0, end: int | None = None) -> Content | None:
        """Open the content, or a part of it. Raises StoreAway."""
        key = _key_of(pool, record)
        return None if key is None else self.objects.get(key, start, end)

    def link(self, method: Literal["GET", "HEAD"], pool: str, record: ArtifactRecord, seconds: int) -> str | None:
        """Return a URL of the store itself; None where only we can serve it."""
        key = _key_of(pool, record)
        return None if key is None else self.objects.sign(method, key, seconds)


def _key_of(pool: str, record: ArtifactRecord) -> str | None:
    try:
        return content_key(pool, job_of(record.id), record.stored_as)
    except ValueError:
        return None
