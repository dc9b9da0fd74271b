"""The shapes of answers about erased content, as `schemas.py` has the others."""

from typing import Literal

from services.ingest.views.schemas import Failure, Shape


class RemovedContent(Shape):
    """What one call removed. `files`: that were sent for this job and are named by no other."""

    deliveries: int
    artifacts: int
    files: int


class Erasure(Shape):
    """An erased job. `complete`: nothing of its content is left; `removed` null: all that is left to the archivist."""

    job_id: str
    object: str
    erased_at: str
    complete: bool
    removed: RemovedContent | None


class ErasureOperation(Shape):
    """What one call did. `already` were erased before; `open` have not ended; of `pending` something is left."""

    id: str
    object: str
    state: Literal["in_progress", "completed"]
    dry_run: bool
    matched: int
    erased: int
    already: int
    open: int
    pending: int
    failed: int
    sample: list[str]
    failures: list[Failure]
    has_more: bool
    next_cursor: str | None
