"""How much device time an attempt costs its tenant: for fair shares, budgets and usage alike. Pure.

Promises: an attempt is charged once, when it is over; what was not the tenant's doing is not charged at all.
"""

from collections.abc import Set as AbstractSet

from contracts import events as ev

# Not the job's doing: the attempt is given back, or its time is.
FAULTS: AbstractSet[str] = frozenset({"worker_lost", "device_unavailable", "artifact_upload_failed"})
ENDINGS = (ev.JobCompleted, ev.JobFailed, ev.JobCancelled, ev.JobExpired)


def share_ms(ms: int, sharers: int) -> int:
    """Return what falls to one of `sharers` that are in one pass.

    >>> share_ms(1000, 3)
    333
    """
    return ms // sharers


def taken_ms(started_ms: int, released_ms: int | None, sharers: int, now_ms: int) -> int:
    """Return the time of an attempt that is over at `now_ms`.

    Args:
        released_ms: what its worker said that it took, a share already; None: it never let the device go.
    """
    return share_ms(now_ms - started_ms, sharers) if released_ms is None else released_ms


def charged_ms(event: ev.Event, taken: int) -> int | None:
    """Return what is charged for an attempt that took so long and that `event` ends; None: nothing."""
    if isinstance(event, ev.JobAttemptFailed):
        if event.error.code in FAULTS:
            return None
        return taken if event.gpu_ms is None else event.gpu_ms
    return taken if isinstance(event, ENDINGS) else None  # handed back, rate limited, its lease lost
