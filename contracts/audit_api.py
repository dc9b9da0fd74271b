"""Bodies of the API about audits. Shape only, as in `contracts.api`."""

from typing import Annotated

from pydantic import Field

from contracts.body import Body, Reason

_Id = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")]
_Position = Annotated[str, Field(pattern=r"^([a-z0-9]{2}\.\d{1,9}\.)?\d{1,16}-\d{1,10}$")]


class AuditCreate(Body):
    """Body of `POST /v1/audit/verify`: what to look at; everything when nothing is named."""

    pool: _Id | None = None
    job_id: _Id | None = None
    tenant_id: _Id | None = None
    after: _Position | None = None
    until: _Position | None = None


class RepairCreate(Body):
    """Body of `POST /v1/audit/repair`: what to make anew where it differs from the log, and why."""

    pool: _Id | None = None
    job_id: _Id | None = None
    tenant_id: _Id | None = None
    reason: Annotated[Reason, Field(min_length=1)]
