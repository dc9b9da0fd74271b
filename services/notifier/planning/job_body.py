"""What a caller asked for, and what came of it, at any event of the job. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from contracts.errors import Corrupt


@dataclass(frozen=True, slots=True)
class JobBody:
    """What the caller asked for, and what came of it so far."""

    spec: Mapping[str, object]
    outcomes: tuple[Mapping[str, object], ...]
    is_erased: bool = False

    def result(self) -> object:
        """Return what `run` returned, None when there is none."""
        return next((line["result"] for line in reversed(self.outcomes) if "result" in line), None)

    def metadata(self, sequence: int) -> object:
        """Return the caller's metadata as they were after this event of the job."""
        return self._changed("metadata", sequence) or {}

    def webhook_events(self, sequence: int) -> object:
        """Return what the job's own webhook subscribed to at this event of the job."""
        return self._changed("webhookEvents", sequence)

    def traceparent(self) -> str | None:
        """Return the trace that the caller's request belonged to."""
        trace = self.spec.get("traceparent")
        return trace if isinstance(trace, str) else None

    def error(self, attempt: int) -> Mapping[str, object]:
        """Return the error text of an attempt, {} when there is none."""
        errors = (line.get("error") for line in reversed(self.outcomes))
        return next((error for error in errors if isinstance(error, dict) and error.get("attempt") == attempt), {})

    def _changed(self, name: str, sequence: int) -> object:
        changes = (line for line in reversed(self.outcomes) if name in line)
        latest = next((line for line in changes if int(str(line.get("sequence") or 0)) <= sequence), self.spec)
        return latest.get(name)


ERASED_BODY = JobBody({}, (), is_erased=True)  # whom to tell is gone with it, but for the endpoints of the tenant


def read_body(job_id: str, body: bytes) -> JobBody:
    """Read the lines of a job's body. Raises Corrupt."""
    try:
        lines = [orjson.loads(line) for line in body.split(b"\n") if line]
    except orjson.JSONDecodeError as error:
        raise Corrupt(job_id, "its body is not lines of JSON") from error
    if not lines or not all(isinstance(line, dict) for line in lines):
        raise Corrupt(job_id, "its body is not lines of JSON objects")
    return JobBody(lines[0], tuple(lines[1:]))
