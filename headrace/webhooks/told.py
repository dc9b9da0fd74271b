"""What a call of a webhook tells: the facts of one, and the line a person reads. Pure.

Promises that nothing of a call can steer a terminal, and that what nobody signed says nothing about other calls.
"""

from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime

import orjson

from headrace.client import JsonObject

MOST_KNOWN = 10_000
_LONGEST = 120


def facts_of(headers: Mapping[str, str], body: bytes, now_s: float) -> JsonObject:
    """Return what a call says of itself; None for what it does not say, as a format may leave it out."""
    told = _parse(body)
    inner = told.get("data")
    inner = inner if isinstance(inner, dict) else {}
    both = {**inner, **told}
    at_s = _seconds(told.get("timestamp") or told.get("time"))
    return {
        "id": _text(headers.get("webhook-id")),
        "type": _text(told.get("type")),
        "jobId": _text(both.get("jobId")),
        "status": _text(both.get("status")),
        "sequence": _whole(both.get("sequence")),
        "attempt": _whole(headers.get("webhook-attempt")),
        "lagMs": None if at_s is None else round((now_s - at_s) * 1000),
    }


class Seen:
    """Which calls were taken, for as many as fit: what is a repeat, and what is older than one that came before."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._sequences: OrderedDict[str, int] = OrderedDict()

    def mark(self, facts: JsonObject) -> JsonObject:
        """Return whether this was taken before, and whether something newer of its job was."""
        newest = self._sequences.get(str(facts["jobId"]), 0)
        is_repeat = facts["id"] in self._ids
        return {"repeat": is_repeat, "older": not is_repeat and 0 < (facts["sequence"] or 0) < newest}

    def take(self, facts: JsonObject) -> None:
        """Remember one that was signed and answered with success."""
        self._ids[facts["id"]] = None
        if facts["sequence"]:
            newest = self._sequences.pop(facts["jobId"], 0)
            self._sequences[facts["jobId"]] = max(newest, facts["sequence"])
        for known in (self._ids, self._sequences):
            while len(known) > MOST_KNOWN:
                known.popitem(last=False)


def line_of(told: JsonObject) -> str:
    """Return the line for a person.

    >>> line_of({"type": "job.completed", "jobId": "job_1", "sequence": 9, "attempt": 2, "signature": "valid",
    ...          "lagMs": 12, "status": "completed", "forward": {"status": 204, "ms": 3}, "repeat": True})
    'job.completed job_1 #9 attempt 2, signature valid, 12 ms after the event, forwarded: 204 in 3 ms, a repeat'
    """
    number = "" if told.get("sequence") is None else f" #{told['sequence']}"
    attempt = "" if told.get("attempt") is None else f" attempt {told['attempt']}"
    parts = [f"{told['type'] or told['status'] or '-'} {told['jobId'] or '-'}{number}{attempt}"]
    parts.append(f"signature {told['signature']}" + (f" ({told['fault']})" if told.get("fault") else ""))
    if told.get("lagMs") is not None:
        parts.append(f"{told['lagMs']} ms after the event")
    if forward := told.get("forward"):
        parts.append(f"forwarded: {forward.get('error') or forward['status']} in {forward['ms']} ms")
    parts += ["410 turns the endpoint off"] if told.get("answered") == 410 else []
    parts += ["a repeat"] if told.get("repeat") else []
    parts += ["older than one that came before: ignore it"] if told.get("older") else []
    return ", ".join(parts)


def printable(body: bytes) -> str:
    """Return a body for a terminal: characters that steer one are shown as a mark."""
    text = body.decode("utf-8", errors="replace")
    return "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)


def _parse(body: bytes) -> JsonObject:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= _LONGEST and value.isprintable() else None


def _whole(value: object) -> int | None:
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 24 else None


def _seconds(value: object) -> float | None:
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except (ValueError, OverflowError):
        return None
