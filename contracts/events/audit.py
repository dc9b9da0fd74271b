"""What is said of the live state: whether it was what follows from the log, and what of it was made anew."""

from typing import ClassVar

from contracts.events.root import Acted, Event


class AuditVerified(Event):
    """operator: log, archive and live state were compared up to `position`; `differing`: rows by projection."""

    TYPE: ClassVar[str] = "audit.verified"
    position: str
    events: int
    archived: int
    hash: str  # the chain's, after the last entry in the archive
    ok: bool
    findings: int = 0
    differing: dict[str, int] | None = None
    first_bad_position: str | None = None
    by: str = ""


class ProjectionRebuilt(Acted):
    """operator: a row of live state was made anew from the log up to `position`; a job set aside is served again."""

    TYPE: ClassVar[str] = "projection.rebuilt"
    projection: str
    row: str
    position: str
    job_id: str | None = None
    reason: str = ""
    by: str = ""
