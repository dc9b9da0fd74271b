"""What a list of events is asked for: query text to a typed question. Pure.

Promises: an unknown or malformed filter is a refusal, never a wider answer; nobody but an operator asks about others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from contracts.archive.stories import Owner
from contracts.endpoints import matches
from contracts.events import CATALOGUE
from contracts.ids import is_job_id, minted_ms
from contracts.positions import START, BadPosition, Position, before, entry_key, parse_position
from contracts.wire import Entry
from services.ingest.edge.problems import Problem
from services.ingest.filters import CLOCK_SLACK_MS, MAX_TEXT, read_instant_ms

FILTERS = frozenset({"jobId", "userId", "model", "type", "after", "before", "from", "to"})
OPERATOR_FILTERS = FILTERS | {"tenantId", "workerId"}
MAX_TYPES = 50
MAX_PLACES = 64

Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Which events; None and () mean any. `tenant_id` None: everybody's, and what belongs to nobody."""

    tenant_id: str | None
    job_id: str | None = None
    user_digest: str | None = None
    model: str | None = None
    worker_id: str | None = None
    types: tuple[str, ...] = ()
    after: Position | None = None
    before: Position | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def canonical(self) -> str:
        """The same text for the same question: what a cursor is bound to."""
        return repr(self)

    @property
    def pool_code(self) -> str | None:
        """The one pool that can have an answer; None: any."""
        named = self.after or self.before
        return named.pool_code if named is not None else None if self.job_id is None else self.job_id[-2:]

    def start(self) -> str:
        """Return a place in a pool's log before which nothing is asked for."""
        places = [START] if self.after is None else [self.after.entry]
        if self.from_ms is not None:
            places.append(before(f"{self.from_ms}-0"))
        if self.job_id is not None:
            places.append(f"{max(0, minted_ms(self.job_id) - CLOCK_SLACK_MS)}-0")
        return max(places, key=entry_key)

    def end(self) -> Key | None:
        """Return the first place in a pool's log that is not asked for; None: there is none."""
        keys = [] if self.before is None else [entry_key(self.before.entry)]
        if self.to_ms is not None:
            keys.append((self.to_ms, 0))
        return min(keys, default=None)

    @property
    def is_of_jobs(self) -> bool:
        """Whether it is asked for something that jobs alone have, and that their events mostly do not say."""
        return not (self.tenant_id is None and self.user_digest is None and self.model is None)

    def may_fit(self, entry: Entry) -> bool:
        """Whether an entry is asked for, as far as it says itself."""
        return (
            (self.job_id is None or entry.subject == self.job_id)
            and (not self.types or any(matches(pattern, entry.type) for pattern in self.types))
            and (self.worker_id is None or _names_worker(entry, self.worker_id))
            and (not self.is_of_jobs or is_job_id(entry.subject))
        )

    def fits(self, owner: Owner) -> bool:
        """Whether events of this job are asked for."""
        return (
            self.tenant_id in (None, owner.tenant_id)
            and self.user_digest in (None, owner.user_digest)
            and (self.model is None or owner.is_of(self.model))
        )


def read_query(
    query: Mapping[str, str], tenant_id: str | None, digest_of_user: Callable[[str], str]
) -> EventQuery:  # fmt: skip
    """Read the filters of a request whose names were checked. Raises Problem `bad_parameter`."""
    for name, value in query.items():
        if name != "cursor" and not 0 < len(value) <= MAX_TEXT * 4:
            raise Problem("bad_parameter", f"{name} is empty or too long")
    job_id, user = query.get("jobId"), query.get("userId")
    if job_id is not None and not is_job_id(job_id):
        raise Problem("bad_parameter", "jobId is the id of a job, job_...")
    asked = EventQuery(
        tenant_id=query.get("tenantId") if tenant_id is None else tenant_id,
        job_id=job_id,
        user_digest=None if user is None else digest_of_user(user),
        model=query.get("model"),
        worker_id=query.get("workerId"),
        types=_types(query.get("type")),
        after=read_position(query, "after"),
        before=read_position(query, "before"),
        from_ms=read_instant_ms(query, "from"),
        to_ms=read_instant_ms(query, "to"),
    )
    if len({code for code in (asked.pool_code, *_codes(asked)) if code is not None}) > 1:
        raise Problem("bad_parameter", "after, before and jobId must be of one pool")
    return asked


def read_position(query: Mapping[str, str], name: str) -> Position | None:
    """Return a public position of the query. Raises Problem `bad_parameter`."""
    text = query.get(name)
    try:
        return None if text is None else parse_position(text)
    except BadPosition:
        raise Problem("bad_parameter", f"{name} is a position, as events carry it") from None


def read_places(text: str | None) -> tuple[Position, ...]:
    """Return one position for each of some pools. Raises Problem `bad_parameter`."""
    if text is None:
        return ()
    parts = text.split(",")
    places = [read_position({"after": part}, "after") for part in parts[:MAX_PLACES]]
    found = tuple(place for place in places if place is not None)
    if len(parts) > MAX_PLACES or len({place.pool_code for place in found}) < len(found):
        raise Problem("bad_parameter", "after names each pool once")
    return found


def _codes(asked: EventQuery) -> list[str | None]:
    named = [each.pool_code for each in (asked.after, asked.before) if each is not None]
    return [*named, None if asked.job_id is None else asked.job_id[-2:]]


def _types(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    patterns = tuple(part.strip() for part in text.split(","))
    for pattern in patterns[: MAX_TYPES + 1]:
        if not any(matches(pattern, name) for name in CATALOGUE):
            raise Problem("bad_parameter", f"type {pattern[:64]!r} means no event; they are listed at /v1/event-types")
    if len(patterns) > MAX_TYPES:
        raise Problem("bad_parameter", f"type names {MAX_TYPES} at most")
    return patterns


def _names_worker(entry: Entry, worker_id: str) -> bool:
    if entry.subject == worker_id:
        return True
    return worker_id.encode() in entry.data and entry.raw_data().get("workerId") == worker_id
