"""How long what has ended is kept: the settings, and what `retention.changed` says otherwise. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from contracts.events import RetentionFacts
from contracts.settings import RetentionSettings

Scope = tuple[str, str]  # pool, tenant; "" means all
ALL: Scope = ("", "")


class Kept(NamedTuple):
    """In seconds. `live_s`: how long events stay in the log after they are archived."""

    completed_s: float
    failed_s: float
    live_s: float = 0.0

    def of(self, *, completed: bool) -> float:
        """Return how long a job that ended so is kept."""
        return self.completed_s if completed else self.failed_s


def kept(settings: Kept, known: Mapping[Scope, RetentionFacts], pool: str = "", tenant_id: str = "") -> Kept:
    """Return what holds: a tenant's own, else its pool's, else what holds for all, else the settings.

    >>> known = {ALL: RetentionFacts(failed_s=9), ("", "t_a"): RetentionFacts(failed_s=5, completed_s=1)}
    >>> kept(Kept(2, 3), known, "default", "t_a"), kept(Kept(2, 3), known, "default", "t_b").failed_s
    (Kept(completed_s=1.0, failed_s=5.0, live_s=0.0), 9.0)
    """
    for scope in (ALL, (pool, ""), ("", tenant_id)):
        facts = known.get(scope)
        if facts is not None:
            settings = settings._replace(**facts.model_dump(exclude_none=True))
    return settings


def shortest(settings: Kept, known: Mapping[Scope, RetentionFacts], pool: str) -> Kept:
    """Return the least that holds for any tenant of a pool: nothing younger need be looked at."""
    all_of = [kept(settings, known, pool, tenant_id) for _, tenant_id in {ALL, *known}]
    return Kept(*(min(values) for values in zip(*all_of, strict=True)))


def from_settings(settings: RetentionSettings) -> Kept:
    """Return what holds where nothing else is said."""
    return Kept(settings.completed_s, settings.failed_s, settings.live_s)
