"""The two clocks of a running attempt: how long it may run, how long it may be silent. Pure arithmetic.

Promises nothing about liveness of the process: a child that holds the GIL or hangs in a driver is found by
these limits or not at all, never by missing heartbeats.
"""

from dataclasses import dataclass

from services.gpu_worker.slots.outcome import Stop


@dataclass(frozen=True, slots=True)
class Limits:
    """Both count from the moment run() was asked for; None = no limit."""

    timeout_s: float | None
    silence_s: float | None = None


def strictness(limits: Limits) -> float:
    """Return what orders limits by their time limit, the strictest first: one of them bounds a whole pass."""
    return float("inf") if limits.timeout_s is None else limits.timeout_s


def deadline(limits: Limits, begun_s: float, heard_s: float) -> tuple[float, Stop] | None:
    """Return when the attempt is to be stopped, and why; None without limits.

    Args:
        begun_s: monotonic time at which run() was asked for.
        heard_s: monotonic time of its last progress, `begun_s` before the first.

    >>> deadline(Limits(timeout_s=60, silence_s=5), begun_s=100, heard_s=130)
    (135, <Stop.SILENCE: 'silence'>)
    """
    clocks = []
    if limits.timeout_s is not None:
        clocks.append((begun_s + limits.timeout_s, Stop.TIMEOUT))
    if limits.silence_s is not None:
        clocks.append((heard_s + limits.silence_s, Stop.SILENCE))
    return min(clocks, default=None, key=lambda clock: clock[0])
