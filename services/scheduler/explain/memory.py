"""What was told, so that a waiting job's ETA never grows by itself. Pure but for its memory.

An estimate that turns out too low, a job that runs longer than others of its kind: none of that may make somebody wait
longer than he was told before. It grows only for a cause: fewer slots, something of the configuration, the job's own
priority lowered or its turn begun anew; and when work arrived that goes before it, by no more than that work.
"""

from collections import OrderedDict
from dataclasses import dataclass

MOST_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class Cause:
    """What may raise an ETA. `arrived_ms`: all work that ever began to wait in the pool."""

    slots: int
    band: int
    fence: int  # rises with every start: its wait began anew
    configured: str  # changes with every pause, limit, weight
    arrived_ms: int


@dataclass(frozen=True, slots=True)
class _Told:
    eta_ms: int
    cause: Cause


class Memory:
    """The last answers, the least recently asked for is forgotten first."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, _Told] = OrderedDict()

    def bounded(self, job_id: str, eta_ms: int | None, cause: Cause) -> int | None:
        """Return the ETA to tell, given the one that was just worked out; None: nobody can say."""
        told = self._told.pop(job_id, None)
        if eta_ms is None:
            return None
        if told is not None and not _is_new(told.cause, cause):
            arrived_ms = cause.arrived_ms - told.cause.arrived_ms
            eta_ms = min(eta_ms, told.eta_ms + arrived_ms // max(1, cause.slots))
        self._told[job_id] = _Told(eta_ms, cause)
        if len(self._told) > MOST_REMEMBERED:
            self._told.popitem(last=False)
        return eta_ms


def _is_new(before: Cause, now: Cause) -> bool:
    return (
        now.slots < before.slots
        or now.band > before.band
        or now.fence != before.fence
        or now.configured != before.configured
    )
