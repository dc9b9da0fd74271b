"""The knobs of the policy as the fold uses them: integers. Pure."""

from dataclasses import dataclass

from contracts.events import PolicyFacts
from contracts.policy import SchedulingPolicy
from services.scheduler.fold.accounts import TIERS
from services.scheduler.fold.ledger import SCALE


@dataclass(frozen=True, slots=True)
class Knobs:
    """What `contracts.policy` says, in ms and thousandths. `lead` is a difference of virtual times."""

    facts: PolicyFacts
    lead: int
    bypass_ms: int
    hold: bool
    deck_lead_ms: int
    floors_milli: tuple[int, ...]


def knobs_of(facts: PolicyFacts) -> Knobs:
    """Return the knobs as integers; a knob that `facts` leave open has its default.

    >>> knobs_of(PolicyFacts(lead_s=1.5)).lead == 1500 * SCALE
    True
    """
    policy = SchedulingPolicy().changed(facts)
    return Knobs(
        facts, _ms(policy.lead_s) * SCALE, _ms(policy.bypass_s), policy.hold, _ms(policy.deck_lead_s),
        tuple(round(policy.tier_floors.get(tier, 0) * 1000) for tier in TIERS),
    )  # fmt: skip


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
