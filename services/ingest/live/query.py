"""What a stream is asked for: query text to a typed question. Pure.

Promises: an unknown name or value is a refusal, since silence that nobody can explain would follow from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from contracts.endpoints import matches
from contracts.events import CATALOGUE
from contracts.job import JobStatus
from contracts.positions import BadPosition, Position, parse_position
from services.ingest.edge.problems import Fault, Problem

Previews = Literal["url", "inline", "none"]
NAMES = frozenset({"after", "from", "types", "previews", "minIntervalMs", "token"})
TENANT_NAMES = NAMES - {"from"} | {"status", "userId"}
OPERATOR_NAMES = frozenset({"after", "types", "minIntervalMs"})
MAX_INTERVAL_MS = 60_000
MAX_TYPES = 50
MAX_PLACES = 64
MAX_TEXT = 256
ALL_TYPES = tuple(CATALOGUE)
_OF_JOBS = tuple(name for name in CATALOGUE if not name.startswith(("webhook.", "worker.", "tenant.", "key.")))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one stream shows. No types or statuses: all; `after` None: from now on."""

    after: str | None = None
    from_start: bool = False
    types: tuple[str, ...] = ()
    previews: Previews = "url"
    min_interval_s: float = 0.0
    statuses: frozenset[JobStatus] = frozenset()
    user_id: str | None = None

    def shows(self, event_type: str) -> bool:
        """Whether events of this type are shown."""
        return not self.types or any(matches(pattern, event_type) for pattern in self.types)


def read_wanted(
    query: Mapping[str, str],
    last_event_id: str | None,
    names: frozenset[str] = NAMES,
    types: tuple[str, ...] = _OF_JOBS,
) -> Wanted:
    """Read a question; the header wins over `after`, since a browser repeats the URL. Raises Problem."""
    for name in query:
        if name not in names:
            raise _fault(name[:64], "unknown_field", "there is no such parameter here")
    start = query.get("from")
    if start not in (None, "start"):
        raise _fault("from", "unknown_value", "must be start")
    after = last_event_id or query.get("after")
    if after is not None:
        read_places(after)
    return Wanted(
        after=after,
        from_start=start is not None and after is None,
        types=_types(query.get("types"), types),
        previews=_previews(query.get("previews", "url")),
        min_interval_s=_interval_ms(query.get("minIntervalMs")) / 1000,
        statuses=_statuses(query.get("status")),
        user_id=_user(query.get("userId")),
    )


def read_places(text: str) -> tuple[Position, ...]:
    """Read where somebody stands: one position, or one for each pool. Raises Problem `bad_cursor`."""
    parts = text.split(",")
    try:
        if len(parts) <= MAX_PLACES:
            return tuple(parse_position(part) for part in parts)
    except BadPosition:
        pass
    raise Problem("bad_cursor", "Last-Event-ID and after are ids that a stream gave, as they are")


def _types(text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return ()
    patterns = tuple(part.strip() for part in text.split(","))
    for pattern in patterns[: MAX_TYPES + 1]:
        if not any(matches(pattern, name) for name in known):
            raise _fault("types", "unknown_value", f"{pattern[:64]!r} means no event there is here")
    if len(patterns) > MAX_TYPES:
        raise _fault("types", "too_long", f"{MAX_TYPES} at most")
    return patterns


def _previews(text: str) -> Previews:
    match text:
        case "url" | "inline" | "none":
            return text
    raise _fault("previews", "unknown_value", "must be url, inline or none")


def _interval_ms(text: str | None) -> int:
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and int(text) <= MAX_INTERVAL_MS):
        raise _fault("minIntervalMs", "bad_format", f"must be a whole number from 0 to {MAX_INTERVAL_MS}")
    return int(text)


def _statuses(text: str | None) -> frozenset[JobStatus]:
    if text is None:
        return frozenset()
    try:
        return frozenset(JobStatus("cancelled" if part == "canceled" else part) for part in text.split(","))
    except ValueError:
        raise _fault("status", "unknown_value", f"must be of {', '.join(JobStatus)}") from None


def _user(text: str | None) -> str | None:
    if text is not None and not 0 < len(text) <= MAX_TEXT:
        raise _fault("userId", "bad_format", f"must have 1 to {MAX_TEXT} characters")
    return text


def _fault(name: str, code: str, message: str) -> Problem:
    kind = "unknown_field" if code == "unknown_field" else "invalid_input"
    return Problem(kind, f"{name}: {message}", (Fault(f"/{name}", code, message),))
