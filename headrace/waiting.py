"""How the place of a waiting job, and why it waits, read on a terminal. Pure."""

from headrace.client import JsonObject


def queue_text(job: JsonObject) -> str | None:
    """Return where a job stands; None when it does not wait, or nobody knows.

    >>> queue_text({"queue": {"pool": "default", "position": 3, "etaSeconds": 41.3}})
    'number 3 in default, starts in about 41 s'
    """
    queue = job.get("queue") or {}
    if queue.get("position") is None and queue.get("etaSeconds") is None:
        return None
    place = f"number {queue['position']} in {queue['pool']}" if queue.get("position") else f"in {queue.get('pool')}"
    return f"{place}, {eta_text(queue.get('etaSeconds'))}"


def eta_text(seconds: float | None) -> str:
    """Return when it should start, in the largest unit that says enough.

    >>> eta_text(0.4), eta_text(90), eta_text(7_300), eta_text(None)
    ('starts in about 0 s', 'starts in about 90 s', 'starts in about 122 min', 'nobody can say when')
    """
    if seconds is None:
        return "nobody can say when"
    return f"starts in about {seconds:.0f} s" if seconds < 600 else f"starts in about {seconds / 60:.0f} min"


def explanation_rows(told: JsonObject) -> JsonObject:
    """Return what a table shows of an explanation: one row for each reason, in words."""
    rows: JsonObject = {"job": told["jobId"], "state": told["state"]}
    if told.get("ahead") is not None:
        rows["ahead"] = f"{told['ahead']} jobs"
    if told.get("ahead") is not None or told.get("etaSeconds") is not None:
        rows["eta"] = f"{eta_text(told.get('etaSeconds'))} ({told.get('etaBasis') or 'nothing to go by'})"
    for reason in told.get("reasons", ()):
        since = f" Since {reason['since']}." if reason.get("since") else ""
        rows[reason["code"]] = f"{reason['detail']}{since}"
    spots = [f"{spot['workerId']}/{spot['slot']}{_spot_text(spot)}" for spot in told.get("wouldRunOn", ())]
    return rows | ({"would run on": ", ".join(spots)} if spots else {})


def _spot_text(spot: JsonObject) -> str:
    warm = "warm, " if spot.get("warm") else ""
    free = "free now" if not spot.get("freeInSeconds") else f"free in {spot['freeInSeconds']:.0f} s"
    return f" ({warm}{free})"
