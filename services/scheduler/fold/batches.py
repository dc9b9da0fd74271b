"""Who shares the pass of a chosen job: jobs of its class, in fair order, of tenants inside the anchor's lead. Pure.

Each member counts and is charged as if it were chosen by itself: caps, tokens and bytes hold for all together, so that
any subset of a batch keeps them, too. Idle devices are filled before anybody shares one.
"""

from collections.abc import Iterator
from dataclasses import replace

from services.scheduler.fold.boards import ClassBoard
from services.scheduler.fold.choices import Choice
from services.scheduler.fold.scratch import Placed, Scratch
from services.scheduler.fold.seeking import next_of_class


def with_companions(scratch: Scratch, choice: Choice, number: int, most: int) -> list[Choice]:
    """Return the choice, which is number `number` of its round, with up to `most` - 1 that share its pass."""
    placed = scratch.placed
    if placed is None or choice.hold_until_ms is not None:
        return [choice]  # who waits for a busy device may yet be offered elsewhere, and a batch is never
    together = [choice, *_companions(scratch, placed, most)]
    if len(together) == 1:
        return together
    return [replace(each, batch=number, batch_size=len(together)) for each in together]


def _companions(scratch: Scratch, placed: Placed, most: int) -> Iterator[Choice]:
    job_class, place = placed.job.job_class, placed.place
    board = scratch.boards.of(job_class)
    for members in range(1, min(most, job_class.max_batch, _share(scratch, board))):
        fair = scratch.fair_there(placed)
        if not board.domain.is_open(scratch.tokens) or not scratch.room.may_join(place, job_class, members):
            return
        job = next_of_class(scratch, fair, board, placed.most_v)
        if job is None:
            return
        yield scratch.join(fair, job, place, members)


def _share(scratch: Scratch, board: ClassBoard) -> int:
    """Return how many of those that wait fall to the place just taken if the idle ones divide them."""
    waiting = board.count - scratch.given[board.job_class]  # the job just placed is not counted as given yet
    others = sum(other.is_idle and scratch.room.fits(other, board.job_class) for other in scratch.room.free())
    return -(-waiting // (others + 1))
