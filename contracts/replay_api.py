"""Body of the public API about replays. Shape only, as in `contracts.api`."""

from typing import Annotated, Literal

from pydantic import Field

from contracts.body import Body, Instant, Name


class ReplayFilters(Body):
    """Which events; all that are named must fit."""

    job_id: Name | None = None
    user_id: Name | None = None
    model: Name | None = None
    type: Name | None = None


class ReplayCreate(Body):
    """Body of `POST /v1/replays`: which stretch of the past to show, and how fast."""

    from_: Annotated[Instant | None, Field(alias="from")] = None
    to: Instant | None = None
    filters: ReplayFilters = ReplayFilters()
    speed: Annotated[int, Field(ge=1, le=100)] | Literal["max"] = 1
    mode: Literal["stream"] = "stream"
