"""Decks of slots that are busy for long, and jobs that have an offer already. Pure."""

from collections.abc import Iterator, Sequence

from services.scheduler.fold.accounts import Account, Tenant
from services.scheduler.fold.boards import Domain, Shelf
from services.scheduler.fold.choices import Choice, Held, OnDeck, Withdrawal
from services.scheduler.fold.lines import Waiting
from services.scheduler.fold.placement import Place
from services.scheduler.fold.records import PRESSING
from services.scheduler.fold.scratch import Scratch

MOST_DECKS = 8  # one job is offered on


def overtaking(scratch: Scratch, decks: Sequence[OnDeck]) -> list[Withdrawal]:
    """Find decks that hold a job of a tenant which has a more pressing one waiting that fits there."""
    withdrawals: list[Withdrawal] = []
    for deck in decks:
        tenant, charge = scratch.ledger.tenants.get(deck.tenant_id), scratch.ledger.charges.get(deck.job_id)
        if deck.band == 0 or tenant is None or tenant.parked or charge is None or charge.due:
            continue
        scratch.take_given()
        better = _better(scratch, tenant, charge.user, deck)
        if better is not None:
            scratch.view.taken.add(better.job_id)
            scratch.view.touched.add(tenant.id)
            withdrawals.append(
                Withdrawal(
                    deck.job_id, deck.offer_id, deck.place.worker.id, deck.place.slot.index, better.job_id
                )
            )  # fmt: skip
    return withdrawals


def late_holds(scratch: Scratch, held: Sequence[Held], *, overdue: bool) -> Iterator[Choice]:
    """Offer jobs whose hold is over at an idle place as well; they are charged already.

    They come after everybody else, since the device they wait for is mostly just about to be free and would not have to
    load their model; before everybody once the hold is over for as long as a load takes (`overdue`).
    """
    for job in held:
        load_ms = scratch.estimates.load_ms(job.job_class.model)
        is_turn = job.until_ms <= scratch.now_ms and (job.until_ms + load_ms <= scratch.now_ms) is overdue
        place = scratch.room.idle(job.job_class) if is_turn else None
        if place is not None:
            yield scratch.further(job.job_id, job.job_class, job.since_ms, place, "late_hold")


def on_decks(scratch: Scratch, closed: Sequence[Place]) -> Iterator[Choice]:
    """Offer pressing jobs that are the fair choice on decks that are not open yet, each on several."""
    fruitless: set[tuple[Domain, ...]] = set()
    given: list[Choice] = []
    for place in (place for place in closed if scratch.room.is_free(place)):
        domains = scratch.boards.domains_at(place)
        fair = scratch.fair(place) if domains not in fruitless else None
        if fair is None or fair.job.band > PRESSING:
            fruitless.add(domains)
        elif scratch.may_hold(place, fair.job.job_class):
            choice = scratch.offer(fair, fair.job, place, "deck")
            given.append(choice)
            yield choice
    for choice in given:
        yield from _on_more_decks(scratch, choice, closed)


def _on_more_decks(scratch: Scratch, choice: Choice, closed: Sequence[Place]) -> Iterator[Choice]:
    job = scratch.view.live[choice.job_id]
    free = [place for place in closed if scratch.room.is_free(place) and scratch.may_hold(place, job.job_class)]
    for place in free[: MOST_DECKS - 1]:
        yield scratch.further(job.job_id, job.job_class, job.since_ms, place, "decks")


def _better(scratch: Scratch, tenant: Tenant, user_id: str, deck: OnDeck) -> Waiting | None:
    """Return the most pressing job that may have the deck; what lies there gives its place under the user's cap."""
    user = tenant.users[user_id]
    user.in_flight -= 1
    try:
        jobs = [
            found for shelf in tenant.shelves.values() for found in _pressing_of(scratch, tenant, shelf, user, deck)
        ]
    finally:
        user.in_flight += 1
    return min(jobs)[2] if jobs else None


def _pressing_of(
    scratch: Scratch, tenant: Tenant, shelf: Shelf, user: Account, deck: OnDeck
) -> Iterator[tuple[int, int, Waiting]]:  # fmt: skip
    domains = scratch.boards.domains_at(deck.place)  # first: a kind of slot not seen yet cuts the domains anew
    job_class, domain = shelf.board.job_class, shelf.board.domain
    if domain not in domains or not domain.is_open(scratch.tokens):
        return
    if job_class.resources or not scratch.room.fits(deck.place, job_class):
        return
    for lane in shelf.lanes:
        if lane.band <= PRESSING and lane.band < deck.band:
            lane.note(user, scratch.view)
            found = lane.fair(tenant.users, tenant.rule.user_cap, scratch.view)
            if found is not None:
                yield lane.band, *found
