"""Which job of one tenant: its fair job, and whether another may go first. Pure.

The fair job is, in the most pressing band, the oldest job of the user who was charged least. Another job of that band
may go first (its model is there, its deadline is near) until own service of `bypass` has overtaken the fair job; a band
whose oldest job was passed over by twice as much goes first itself.
"""

from collections.abc import Collection
from dataclasses import dataclass

from services.scheduler.fold.accounts import Tenant
from services.scheduler.fold.boards import Domain, Shelf
from services.scheduler.fold.lines import View, Waiting


@dataclass(slots=True)
class Heads:
    """What stands first in one band."""

    user_v: int
    fair: Waiting
    oldest: Waiting


def survey(tenant: Tenant, domains: Collection[Domain], view: View) -> dict[int, Heads]:
    """Return what stands first in each band, among the jobs of these domains that may be offered."""
    found: dict[int, Heads] = {}
    users, user_cap = tenant.users, tenant.rule.user_cap
    for shelf in tenant.shelves.values():
        if shelf.board.domain not in domains:
            continue
        for lane in shelf.lanes:
            best = lane.fair(users, user_cap, view)
            if best is None:
                continue
            oldest = best[1]
            if lane.queues is not None:
                first = lane.oldest(view)
                oldest = oldest if first is None or users[first.user].in_flight >= user_cap else first
            heads = found.get(lane.band)
            if heads is None:
                found[lane.band] = Heads(best[0], best[1], oldest)
                continue
            if best[0] < heads.user_v or (best[0] == heads.user_v and best[1] < heads.fair):
                heads.user_v, heads.fair = best
            if oldest < heads.oldest:
                heads.oldest = oldest
    return found


def only_band(tenant: Tenant, shelf: Shelf, bypass_ms: int) -> int | None:
    """Return the band of all the tenant's jobs if nothing of it is due, so that any job of it may go first."""
    band = shelf.lanes[0].band
    if tenant.skips and max(tenant.skips.values()) > bypass_ms:
        return None
    for other in tenant.shelves.values():
        for lane in other.lanes:
            if lane.band != band:
                return None
    return band


def fair_job(tenant: Tenant, found: dict[int, Heads], bypass_ms: int) -> tuple[Waiting, bool]:
    """Return the tenant's fair job, and whether nothing of its own may overtake it any more."""
    skips, first = tenant.skips or {}, min(found)
    if skips and len(found) > 1:
        for band in sorted(found):
            oldest = found[band].oldest
            if band > first and skips.get(oldest.key, 0) > 2 * bypass_ms:
                return oldest, True
    fair = found[first].fair
    return fair, skips.get(fair.key, 0) > bypass_ms


def best_on(tenant: Tenant, shelf: Shelf, band: int, view: View) -> tuple[int, Waiting] | None:
    """Return the fair job among those of one class and band, with its user's charge."""
    lane = shelf.lane(band)
    return None if lane is None else lane.fair(tenant.users, tenant.rule.user_cap, view)


def pass_over(tenant: Tenant, found: dict[int, Heads], job: Waiting, est_ms: int) -> None:
    """Count the service of `job` for all that it overtakes: its band's fair job, and the oldest of each lower band."""
    for band, heads in found.items():
        passed = heads.fair if band == job.band else heads.oldest
        if band >= job.band and passed is not job:
            if tenant.skips is None:
                tenant.skips = {}
            tenant.skips[passed.key] = tenant.skips.get(passed.key, 0) + est_ms
