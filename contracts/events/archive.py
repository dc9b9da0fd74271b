"""What the archivist says in the log about the archive of that log."""

from typing import ClassVar

from contracts.events.root import Event


class ArchiveErased(Event):
    """ingest: as job.erased, of a job that was forgotten before: its own events had ended."""

    TYPE: ClassVar[str] = "archive.erased"
    job_id: str
    tenant_id: str
    by: str
    reason: str = ""


class ArtifactExpired(Event):
    """archivist: a stored file was kept for its time, and is removed; its id is the subject."""

    TYPE: ClassVar[str] = "artifact.expired"
    artifact_id: str
    job_id: str
    tenant_id: str
    reason: str = "expired"


class ArtifactDeleted(Event):
    """ingest or archivist: a stored file was removed with its job, before its time; its id is the subject."""

    TYPE: ClassVar[str] = "artifact.deleted"
    artifact_id: str
    job_id: str
    tenant_id: str
    reason: str = "erased"


class LogCheckpointed(Event):
    """archivist: the archive up to `position` has this digest, signed (`contracts/archive/checkpoints.py`)."""

    TYPE: ClassVar[str] = "log.checkpointed"
    position: str
    hash: str
    count: int
    epoch: int
    key_id: str
    signature: str
