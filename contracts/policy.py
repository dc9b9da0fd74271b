"""The knobs of a pool's scheduling policy, with their bounds and defaults. Pure.

Settings give the defaults (`HEADRACE_SCHEDULER__POLICY__...`), `policy.changed` events override them pool by pool, and
the leader copies the result into its log, so that every fold of it knows the policy that was in force.
"""

from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from contracts.events import PolicyFacts, Tier

MOST_FLOORS = 0.8  # of the pool in all: the rest is shared by everybody, or fairness would mean nothing
DEFAULT_WEIGHTS: dict[Tier, float] = {"enterprise": 8.0, "standard": 3.0, "free": 1.0}
DEFAULT_FLOORS: dict[Tier, float] = {"enterprise": 0.7, "free": 0.05}


def _parse_shares(value: object) -> object:
    """Read `enterprise=0.7,free=0.05`; leaves anything else to pydantic."""
    if not isinstance(value, str):
        return value
    parts = [part.partition("=") for part in value.split(",") if part.strip()]
    if not all(equals for _, equals, _ in parts):
        raise ValueError("write tier=number, joined by commas, such as enterprise=0.7,free=0.05")
    return {tier.strip(): number.strip() for tier, _, number in parts}


Weight = Annotated[float, Field(ge=0.001, le=1_000_000, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=MOST_FLOORS, allow_inf_nan=False)]
PolicySeconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]


class SchedulingPolicy(BaseModel):
    """Every knob, complete and in bounds. Meaning and measurements: the scheduling chapter of contracts/README.md."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tier_weights: Annotated[dict[Tier, Weight], BeforeValidator(_parse_shares)] = DEFAULT_WEIGHTS
    tier_floors: Annotated[dict[Tier, Share], BeforeValidator(_parse_shares)] = DEFAULT_FLOORS
    lead_s: PolicySeconds = 90.0  # A: how far a preference may depart from the fair choice, in seconds at weight 1
    bypass_s: PolicySeconds = 300.0  # B: own service that may overtake a tenant's fair job before it is served cold
    hold: bool = True  # a job may wait, as long as loading its model would take, for a busy device that has it
    deck_lead_s: PolicySeconds = 5.0  # a deck is filled so long before its slot should be free

    @field_validator("tier_weights")
    @classmethod
    def _complete(cls, weights: dict[Tier, float]) -> dict[Tier, float]:
        return DEFAULT_WEIGHTS | weights

    @field_validator("tier_floors")
    @classmethod
    def _leave_room(cls, floors: dict[Tier, float]) -> dict[Tier, float]:
        if sum(floors.values()) > MOST_FLOORS + 1e-9:
            raise ValueError(
                f"the floors add up to {sum(floors.values()):g}; they may take {MOST_FLOORS:g} of a pool at most"
            )
        return floors

    def changed(self, facts: PolicyFacts) -> Self:
        """Return the policy with what `facts` name changed. Raises ValueError (pydantic) for what is out of bounds."""
        return self.model_validate(self.model_dump() | facts.model_dump(exclude_none=True))

    def facts(self) -> PolicyFacts:
        """Return every knob, as it is copied into a pool's log."""
        return PolicyFacts.model_validate(self.model_dump())
