"""What is known of a stored file, and the keys under which it and its record lie.

Promises: no text of an author or a caller becomes part of a key but a harmless ending; a record reads back what was
written, also by an older version.
"""

import mimetypes
import os
import re
from dataclasses import dataclass

from contracts.events import ArtifactRef, Part

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_SAFE_ENDING = re.compile(r"\.[A-Za-z0-9]{1,8}")
_STORED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,159}")
_RECORD = ".json"
INCOMING = "_incoming/"  # what is on its way in; no pool can be called so


@dataclass(frozen=True, slots=True)
class Upload:
    """What is known of a file before it is stored."""

    id: str
    pool: str
    job_id: str
    tenant_id: str
    name: str  # the author's, for people; only its ending becomes part of a key
    kind: str
    variant: str
    width: int | None
    height: int | None
    created_ms: int
    expires_at_ms: int
    mime: str | None = None  # None: what the name's ending claims


class ArtifactRecord(ArtifactRef):
    """The record beside a stored file."""

    tenant_id: str
    created_ms: int
    file_name: str  # what a download is called
    stored_as: str


class ErasedFolder(Part):
    """What lies in the folder of an erased job, and keeps late files from staying there."""

    tenant_id: str
    erased_ms: int


def describe(upload: Upload, size_bytes: int, sha256: str) -> ArtifactRecord:
    """Return the record of a file that is about to be stored."""
    return ArtifactRecord(
        id=upload.id,
        kind=upload.kind,
        variant=upload.variant,
        mime=upload.mime or mime_of(upload.name),
        bytes=size_bytes,
        sha256=sha256,
        path=f"/v1/artifacts/{upload.id}/content",
        expires_at_ms=upload.expires_at_ms,
        width=upload.width,
        height=upload.height,
        tenant_id=upload.tenant_id,
        created_ms=upload.created_ms,
        file_name=upload.name,
        stored_as=_stored_as(upload),
    )


def content_key(pool: str, job_id: str, stored_as: str) -> str:
    """Return where the content lies. Raises ValueError for a name that could leave its folder.

    >>> content_key("default", "job_1", "art_1.png")
    'default/job_1/art_1.png'
    """
    if not _STORED_NAME.fullmatch(stored_as):
        raise ValueError(f"{stored_as[:40]!r} is no name of a stored file")
    return f"{folder_key(pool, job_id)}{stored_as}"


def record_key(pool: str, job_id: str, artifact_id: str) -> str:
    """Return where the record lies. Raises ValueError for a name that could leave its folder."""
    return f"{folder_key(pool, job_id)}{_checked(artifact_id)}{_RECORD}"


def erased_key(pool: str, job_id: str) -> str:
    """Return where it is said that a job is erased. Raises ValueError for a name that could leave its folder."""
    return f"{folder_key(pool, job_id)}erased.json"


def recorded(key: str) -> str:
    """Return the id of the file whose record lies there; '' for anything else.

    >>> recorded("default/job_1/art_1.json"), recorded("default/job_1/art_1.content.json")
    ('art_1', '')
    """
    name = key.rpartition("/")[2]
    stem = name.removesuffix(_RECORD)
    return stem if stem != name and stem.startswith("art_") and "." not in stem else ""


def folder_key(pool: str, job_id: str) -> str:
    """Return the folder of a job's files. Raises ValueError for a name that could leave it."""
    return f"{_checked(pool)}/{_checked(job_id)}/"


def mime_of(name: str) -> str:
    """Return the type that the name's ending claims; nobody has looked inside.

    >>> mime_of("a.png"), mime_of("b.webp"), mime_of("c")
    ('image/png', 'image/webp', 'application/octet-stream')
    """
    return mimetypes.guess_type(name, strict=False)[0] or "application/octet-stream"


def ending_of(name: str) -> str:
    """Return the ending of somebody's name if it is a harmless one.

    >>> ending_of("a/b.PNG"), ending_of("x.tar.gz"), ending_of("y./../z")
    ('.png', '.gz', '')
    """
    ending = os.path.splitext(name)[1]
    return ending.lower() if _SAFE_ENDING.fullmatch(ending) else ""


def _stored_as(upload: Upload) -> str:
    ending = ending_of(upload.name)
    return upload.id + (".content" if ending == _RECORD else "") + ending  # else its record would replace it


def _checked(name: str) -> str:
    if not _SAFE_NAME.fullmatch(name):
        raise ValueError(f"{name[:40]!r} cannot be part of a key")
    return name
