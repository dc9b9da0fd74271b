"""One round of choosing: for each free place the fair choice, or what may go before it, or nothing. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from services.scheduler.fold.batches import with_companions
from services.scheduler.fold.choices import Choice, Held
from services.scheduler.fold.decks import late_holds, on_decks
from services.scheduler.fold.ledger import FLAT
from services.scheduler.fold.placement import Place, opens_at_ms
from services.scheduler.fold.scratch import Fair, Scratch
from services.scheduler.fold.seeking import departure, inside_lead

PATIENCE_PERCENT = 150  # of the load it may save; simulated: less costs swaps, more makes enterprise wait


def choose(scratch: Scratch, held: Sequence[Held], limit: int, *, pressing: bool) -> list[Choice]:
    """Return up to `limit` choices: for idle places, then for decks of slots that are nearly free.

    Args:
        held: jobs that wait for a busy device.
        pressing: whether jobs wait that may lie on decks before these are open, and on several.
    """
    choices = list(late_holds(scratch, held, overdue=True))[:limit]
    closed: list[Place] = []
    for place in scratch.room.free():
        if opens_at_ms(place.slot, scratch.knobs.deck_lead_ms) > scratch.now_ms:
            closed.append(place)
            continue
        while scratch.room.is_free(place) and len(choices) < limit:
            choice = _next_choice(scratch, place)
            if choice is None:
                break
            choices += with_companions(scratch, choice, len(choices), limit - len(choices))
    choices += list(late_holds(scratch, held, overdue=False))[: limit - len(choices)]
    if pressing and len(choices) < limit:
        choices += list(on_decks(scratch, closed))[: limit - len(choices)]
    return choices


def _next_choice(scratch: Scratch, place: Place) -> Choice | None:
    """Choose for a free place; the job may go to a better one. None: nothing is given to this place now."""
    while (fair := scratch.fair(place)) is not None:
        if place.device in scratch.draining:
            return inside_lead(scratch, fair, place, scratch.draining[place.device])
        if not place.is_idle and fair.job.job_class.resources:
            scratch.view.taken.add(fair.job.job_id)  # its deck stays empty for it: a start must be near its token
            scratch.view.touched.add(fair.anchor.id)
            return None
        if not fair.due and (choice := departure(scratch, fair, place)) is not None:
            return choice
        if (choice := _placed(scratch, fair, place)) is not None:
            return choice
        lead = fair.anchor.v + scratch.knobs.lead
        if (choice := inside_lead(scratch, fair, place, lead)) is not None:
            return choice
        device = scratch.room.drained_for(fair.job.job_class)
        scratch.view.taken.add(fair.job.job_id)  # it waits for that device; the others go on without it
        scratch.view.touched.add(fair.anchor.id)
        if device is not None:
            scratch.draining.setdefault(device, lead)
        if device == place.device:
            return None
    return None


def _placed(scratch: Scratch, fair: Fair, place: Place) -> Choice | None:
    job_class = fair.job.job_class
    here = scratch.room.fits(place, job_class)
    why = "idle" if place.is_idle else "deck"
    if here and place.spares_load(job_class):
        return scratch.offer(fair, fair.job, place, why)
    warm = scratch.room.warm(job_class, idle=True)
    if warm is not None:
        return scratch.offer(fair, fair.job, warm, "idle")
    if (held := _hold(scratch, fair, place)) is not None:
        return held
    if here and (choice := _patient(scratch, fair, place)) is not None:
        return choice
    if here:
        return scratch.offer(fair, fair.job, place, why)
    other = scratch.room.idle(job_class)
    return None if other is None else scratch.offer(fair, fair.job, other, "idle")


def _patient(scratch: Scratch, fair: Fair, place: Place) -> Choice | None:
    """Let a warm job of any tier go before a job of an owed one that would have to be loaded here, for a while.

    The next device to be free may have its model; until then this one is of more use to somebody else.
    """
    patience_ms = scratch.estimates.load_ms(fair.job.job_class.model) * PATIENCE_PERCENT // 100
    if fair.phase == FLAT or not scratch.knobs.hold or scratch.now_ms - fair.job.since_ms >= patience_ms:
        return None
    flat = scratch.fair(place, flat=True)
    return None if flat is None or flat.due else departure(scratch, flat, place)


def _hold(scratch: Scratch, fair: Fair, place: Place) -> Choice | None:
    """Let the job wait for a busy device that has its model, if that is free before a load would be over."""
    job = fair.job
    load_ms = scratch.estimates.load_ms(job.job_class.model)
    if not scratch.knobs.hold or job.held or not load_ms or job.job_class.resources:
        return None
    busy = scratch.room.warm(job.job_class, idle=False)
    ready_ms = scratch.now_ms if place.is_idle else max(scratch.now_ms, place.slot.free_at_ms)
    if busy is None or busy.slot.guessed or busy.slot.free_at_ms >= ready_ms + load_ms:
        return None
    choice = scratch.offer(fair, job, busy, "hold")
    return replace(choice, hold_until_ms=ready_ms + load_ms)
