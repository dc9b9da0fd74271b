"""Folding a job: its events one by one, or the hash that already holds their sum.

Promises: folding any prefix and then the rest is folding all; a gap in the sequence, or a transition that is not in the
table, is Corrupt.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from contracts import events as ev
from contracts.errors import Corrupt
from contracts.job import FIELDS, JobState, JobStatus, legal
from contracts.job_changes import GONE, NOW, OFFER_PREFIX, Changes, changes
from contracts.positions import entry_ms
from contracts.wire import Entry

_INTEGERS = frozenset(
    {"fence", "attempt", "run", "max_attempts", "timeout_ms", "created_ms", "body_bytes", "not_before_ms",
     "start_by_at_ms", "slot", "queued_ms", "started_ms", "step", "total_steps", "cancel_requested_ms", "done_ms",
     "erased_ms"}
)  # fmt: skip
_ATTRIBUTES: Final[Mapping[str, str]] = {short: name for name, short in FIELDS.items()}


def evolve(state: JobState, entry: Entry) -> JobState:
    """Fold one entry of the job. Raises Corrupt for a gap in the sequence or an illegal transition."""
    if entry.sequence != state.sequence + 1:
        raise Corrupt(entry.position, f"{state.id}: event {entry.sequence} follows {state.sequence}")
    event = entry.event()
    if event is not None and not legal(state.status, entry.type):
        raise Corrupt(entry.position, f"{state.id}: {entry.type} is not possible while {state.status}")
    moved = replace(state, sequence=entry.sequence, position=entry.position)
    if event is None:  # a type of a newer version: kept in the log, skipped here
        return moved
    moved = _apply(moved, changes(event, entry.fence), entry_ms(entry.position))
    if isinstance(event, ev.JobCompleted):
        return replace(moved, artifacts=event.artifacts, timings=event.timings)
    return moved


def fold(job_id: str, entries: Iterable[Entry]) -> JobState:
    """Fold the events of one job in order, from its creation."""
    state = JobState(job_id)
    for entry in entries:
        state = evolve(state, entry)
    return state


def _apply(state: JobState, fields: Changes, now_ms: int) -> JobState:
    offers = dict(state.offers)
    values: dict[str, object] = {}
    for name, value in fields.items():
        if name == OFFER_PREFIX + "*":
            offers.clear()
        elif name.startswith(OFFER_PREFIX):
            _apply_offer(offers, name[len(OFFER_PREFIX) :], value)
        else:
            attribute = _ATTRIBUTES[name]
            values[attribute] = _value(attribute, _resolve(value, now_ms))
    return replace(state, offers=offers, **values)  # type: ignore[arg-type]


def _apply_offer(offers: dict[str, tuple[str, int]], offer_id: str, value: str) -> None:
    if value == GONE:
        offers.pop(offer_id, None)
        return
    worker_id, _, slot = value.partition(" ")
    offers[offer_id] = (worker_id, int(slot))


def _resolve(value: str, now_ms: int) -> str:
    if not value.startswith(NOW):
        return value
    return str(now_ms + int(value[2:] or 0))


_DEFAULTS: Final[Mapping[str, object]] = {"progress": 0.0}


def _value(attribute: str, text: str) -> object:
    if text == GONE:
        return _DEFAULTS.get(attribute)
    if attribute in _INTEGERS:
        return int(text)
    if attribute == "progress":
        return float(text)
    return JobStatus(text) if attribute == "status" else text


def from_hash(job_id: str, raw: Mapping[str, str]) -> JobState | None:
    """Read the folded state from the job hash; None when the hash is empty (never admitted, or forgotten).

    Raises Corrupt.
    """
    if "s" not in raw:
        return None
    offers: dict[str, tuple[str, int]] = {}
    values: dict[str, object] = {}
    try:
        for name, value in raw.items():
            if name.startswith(OFFER_PREFIX):
                _apply_offer(offers, name[len(OFFER_PREFIX) :], value)
            elif name in _ATTRIBUTES:
                values[_ATTRIBUTES[name]] = _value(_ATTRIBUTES[name], value)
        return JobState(job_id, int(raw["n"]), raw["p"], offers=offers, **values)  # type: ignore[arg-type]
    except (ValueError, KeyError) as error:
        raise Corrupt(job_id, f"its hash cannot be read: {error}") from error
