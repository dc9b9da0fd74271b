"""The shapes of answers about audits."""

from typing import Literal

from services.ingest.views.schemas import Anything, Page, Shape


class AuditUrls(Shape):
    """Where to look again."""

    self: str


class Audit(Shape):
    """An audit or a repair. `pools` is what `headrace audit verify -o json` prints of each, once it is done."""

    id: str
    object: Literal["audit"]
    status: Literal["running", "done", "failed"]
    repair: bool
    pool: str | None
    job_id: str | None
    tenant_id: str | None
    after: str | None
    until: str | None
    reason: str
    by: str
    asked_at: str
    ended_at: str | None
    ok: bool | None
    events: int | None
    chain_ok: bool | None
    first_bad_position: str | None
    pools: list[dict[str, Anything]]
    error: str | None
    urls: AuditUrls


class CheckpointShown(Shape):
    """What was signed, where that stands in the log, and whether the key of this store signed it."""

    pool: str
    at: str
    time: str
    position: str
    count: int
    hash: str
    key_id: str
    signature: str
    genuine: bool


class CheckpointPage(Page):
    """Signed checkpoints, oldest first."""

    data: list[CheckpointShown]
