"""Body of the public API about replays. Shape only, as in `contracts.api`."""

from typing import Annotated, Literal, LiteralString, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from contracts.body import Body, Instant, Name
from contracts.events import Tier
from contracts.policy import PolicySeconds, Share, Weight

_ONLY = {
    "from_": ("stream", "whatif"),
    "to": ("stream", "whatif"),
    "filters": ("stream", "project"),
    "speed": ("stream",),
    "at": ("project",),
    "pool": ("whatif",),
    "policy": ("whatif",),
}


class ReplayFilters(Body):
    """Which events; all that are named must fit."""

    job_id: Name | None = None
    user_id: Name | None = None
    model: Name | None = None
    type: Name | None = None


class WhatIfPolicy(Body):
    """Another policy: knobs as in `PATCH /admin/v1/scheduler/policy`, and tenants' weights inside their tiers."""

    tier_weights: dict[Tier, Weight] | None = None
    tier_floors: dict[Tier, Share] | None = None
    lead_seconds: PolicySeconds | None = None
    bypass_seconds: PolicySeconds | None = None
    hold: bool | None = None
    deck_lead_seconds: PolicySeconds | None = None
    weights: Annotated[dict[Name, Annotated[float, Field(ge=0.001, le=1000)]], Field(max_length=1_000)] = {}


class ReplayCreate(Body):
    """Body of `POST /v1/replays`: which stretch of the past to show, and how fast; or what to compute from it."""

    from_: Annotated[Instant | None, Field(alias="from")] = None
    to: Instant | None = None
    filters: ReplayFilters = ReplayFilters()
    speed: Annotated[int, Field(ge=1, le=100)] | Literal["max"] = 1
    mode: Literal["stream", "project", "whatif"] = "stream"
    at: Name | None = None  # of a projection: a time or a position, included
    pool: Name | None = None  # of another policy
    policy: WhatIfPolicy | None = None

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        for name, modes in _ONLY.items():
            if name in self.model_fields_set and self.mode not in modes:
                shown = "from" if name == "from_" else name
                text: LiteralString = "does not go with this mode"
                raise PydanticCustomError("contradiction", text, {"pointer": f"/{shown}"})
        if self.mode == "project" and {"user_id", "model", "type"} & self.filters.model_fields_set:
            raise PydanticCustomError("contradiction", "a projection is of one job or of all", {"pointer": "/filters"})
        return self
