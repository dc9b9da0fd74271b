"""Where a job stands, why it waits and what waits in a pool, as JSON. Pure.

Everything here comes from the leader of the pool at the moment of asking; null is what nobody knows.
"""

from contracts.job import WAITING, JobStatus
from contracts.questions import Backlog, Explanation, JobPlace, Reason, Spot
from contracts.times import instant
from services.ingest.views.body_lines import JsonObject

NO_SCHEDULER = Reason(
    "no_scheduler",
    "No scheduler answers for this pool: none is running, or it is too busy to say. Nothing starts without one.",
)


def queue_view(pool: str, place: JobPlace | None) -> JsonObject:
    """Return `queue` of a job; `position` 1 is served next."""
    place = place or JobPlace()
    return {
        "pool": pool,
        "position": None if place.ahead is None else place.ahead + 1,
        "etaSeconds": seconds(place.eta_ms),
        "etaBasis": place.basis,
    }


def explain_view(job_id: str, pool: str, status: JobStatus | None, told: Explanation | None) -> JsonObject:
    """Return why a job is not running; None: nobody said."""
    if told is None:
        told = Explanation(reasons=(NO_SCHEDULER,)) if status in WAITING else Explanation()
    return {
        "jobId": job_id,
        "pool": pool,
        "state": status,
        "reasons": [
            {"code": each.code, "detail": each.detail, "since": instant(each.since_ms)} for each in told.reasons
        ],
        "ahead": told.place.ahead,
        "etaSeconds": seconds(told.place.eta_ms),
        "etaBasis": told.place.basis,
        "wouldRunOn": [_spot(each) for each in told.would_run_on],
    }


def backlog_view(pool: str, told: Backlog) -> JsonObject:
    """Return what an autoscaler asks for."""
    return {
        "pool": pool,
        "desiredReplicas": told.desired_workers,
        "backlogSeconds": seconds(told.work_ms),
        "backlogJobs": told.jobs,
        "oldestSeconds": seconds(told.oldest_ms),
    }


def seconds(ms: int | None) -> float | None:
    """Return ms as seconds with one decimal.

    >>> seconds(41_260), seconds(None)
    (41.3, None)
    """
    return None if ms is None else round(ms / 1000, 1)


def _spot(spot: Spot) -> JsonObject:
    return {
        "workerId": spot.worker_id,
        "slot": spot.slot,
        "device": spot.device,
        "kind": spot.kind,
        "warm": spot.warm,
        "freeInSeconds": seconds(spot.free_in_ms),
    }
