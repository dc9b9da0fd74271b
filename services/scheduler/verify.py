"""Check mode: fold a log and choose again. Pure.

Each job.assigned says on which position and at which time it was chosen, in which turn, as which choice of how many.
The log is folded to that position, asked again, and must answer the same; a choice that is missing from the log must
be explained by an entry about its job, its worker or the policy between the basis and the turn. Choices of another
policy, or another version of this one, are folded and not judged.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from contracts import events as ev
from contracts.positions import entry_key
from contracts.wire import Entry
from services.scheduler.fold.choices import Choice
from services.scheduler.fold.policy import NAME, VERSION
from services.scheduler.fold.state import PoolState
from services.scheduler.turns import MOST_CHOICES


@dataclass(frozen=True, slots=True)
class Fault:
    """Where the log is not what the policy would have done."""

    position: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Turn:
    """The choices of one turn that are in the log, by their number."""

    basis: str
    now_ms: int
    of: int
    position: str  # of the first of them
    made: dict[int, tuple[str, ev.JobAssigned]]


def verify(entries: Sequence[Entry], state: PoolState | None = None) -> list[Fault]:
    """Return all faults; `state` is the fold up to where `entries` begin (default: the log is complete)."""
    folded = PoolState() if state is None else state
    turns, faults = _turns(entries)
    waiting = sorted(turns, key=lambda turn: entry_key(turn.basis), reverse=True)
    while waiting and entry_key(waiting[-1].basis) < entry_key(folded.position):
        waiting.pop()  # chosen before these entries begin
    for entry in entries:
        while waiting and entry_key(waiting[-1].basis) <= entry_key(folded.position):
            faults += _check(waiting.pop(), folded, entries)
        folded.apply(entry)
    return faults


def _turns(entries: Iterable[Entry]) -> tuple[list[_Turn], list[Fault]]:
    turns: dict[tuple[str, int, int], _Turn] = {}
    faults: list[Fault] = []
    for entry in entries:
        event = entry.event() if entry.type == ev.JobAssigned.TYPE else None
        if not isinstance(event, ev.JobAssigned) or (event.policy, event.policy_version) != (NAME, VERSION):
            continue  # what another policy has chosen cannot be chosen again
        key = (event.basis, event.turn, event.now_ms)
        turn = turns.setdefault(key, _Turn(event.basis, event.now_ms, event.of, entry.position, {}))
        if event.i in turn.made or event.of != turn.of:
            faults.append(Fault(entry.position, f"choice {event.i} of turn {event.turn} is there twice"))
        turn.made[event.i] = (entry.subject, event)
    return list(turns.values()), faults


def _check(turn: _Turn, state: PoolState, entries: Sequence[Entry]) -> list[Fault]:
    _, again = state.choose(turn.now_ms, MOST_CHOICES)
    if len(again) != turn.of:
        return [Fault(turn.position, f"{turn.of} choices were made, {len(again)} would have been")]
    faults = []
    for i, choice in enumerate(again):
        if i not in turn.made:
            faults += [] if _is_explained(choice, turn, entries) else [Fault(turn.position, f"choice {i} is missing")]
        elif _said(*turn.made[i]) != choice:
            faults.append(Fault(turn.position, f"choice {i}: {_said(*turn.made[i])} instead of {choice}"))
    return faults


def _said(job_id: str, event: ev.JobAssigned) -> Choice:
    return Choice(
        job_id, event.worker_id, event.slot, event.device, event.bytes, event.est_ms, event.wait_ms,
        event.anchor or "", event.why, event.phase or "", event.hold_until_ms, _batch(event), event.batch_size or 1,
        event.alone or False,
    )  # fmt: skip


def _batch(event: ev.JobAssigned) -> int | None:
    """Return which choice of its turn the batch began with."""
    number = (event.batch or "").rpartition("-")[2]
    return int(number) if number.isdecimal() else None


def _is_explained(choice: Choice, turn: _Turn, entries: Sequence[Entry]) -> bool:
    about = (choice.job_id, choice.worker_id)
    between = (e for e in entries if entry_key(turn.basis) < entry_key(e.position) < entry_key(turn.position))
    return any(entry.subject in about or entry.type == ev.PolicyApplied.TYPE for entry in between)
