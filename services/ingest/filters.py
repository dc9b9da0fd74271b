"""Filters of the job list: query text to a typed question, and whether a job answers it.

Promises: an unknown or malformed filter is an error, never a wider answer; what can be decided from the id or the
state alone is, so that bodies are read for candidates only.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from contracts.api import JobsFilter
from contracts.ids import RANDOM_BITS, encode_base32
from contracts.job import TERMINAL, JobState, JobStatus
from contracts.times import ms_of
from services.ingest.edge.problems import Problem

NAMES = frozenset(
    {"status", "model", "userId", "priority", "pool", "createdAfter", "createdBefore", "deadLettered", "q",
     "limit", "cursor"}
)  # fmt: skip
METADATA = "metadata."
MAX_TEXT = 256
# An id carries the time at which it was minted on an ingest host, a job the time at which the store admitted it.
CLOCK_SLACK_MS = 600_000
_PRIORITIES = frozenset({"low", "normal", "high", "urgent"})
_OPEN = ("scheduled", "queued", "in_progress")
_PREFIX = re.compile(r"job_[0-9a-z]{0,28}")
_BASE32_OF_MS = 26


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What is asked for; empty means anything."""

    statuses: frozenset[JobStatus] = frozenset()
    model: str | None = None
    user_id: str | None = None
    priority: str | None = None
    pool: str | None = None
    created_after_ms: int | None = None
    created_before_ms: int | None = None
    is_dead_lettered: bool | None = None
    prefix: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    canonical: str = field(default="", compare=False)

    @property
    def wants_open(self) -> bool:
        """Whether a job that has not ended may answer."""
        return not self.statuses or not self.statuses <= TERMINAL

    @property
    def wants_closed(self) -> bool:
        """Whether a job that has ended may answer."""
        return not self.statuses or bool(self.statuses & TERMINAL)

    @property
    def asks_spec(self) -> bool:
        """Whether the caller's own words decide, which only the body holds."""
        return self.user_id is not None or bool(self.metadata)

    def first_below(self) -> str:
        """Return an id that sorts above every answer, '' when any id may be one."""
        bounds = []
        if self.prefix:
            bounds.append(self.prefix + "~")
        if self.created_before_ms is not None:
            bounds.append(_id_bound(self.created_before_ms + CLOCK_SLACK_MS))
        return min(bounds, default="")

    def ends_at(self, job_id: str) -> bool:
        """Whether this id and all that sort below it are out of the question."""
        if self.prefix and job_id < self.prefix:
            return True
        return self.created_after_ms is not None and job_id < _id_bound(self.created_after_ms - CLOCK_SLACK_MS)

    def fits_state(self, state: JobState) -> bool:
        """Whether the folded state answers the question."""
        return (
            (not self.statuses or state.status in self.statuses)
            and (self.model is None or self.model in (state.model, state.model.partition("@")[0]))
            and (self.priority is None or state.priority == self.priority)
            and (self.is_dead_lettered is None or bool(state.dead_lettered) is self.is_dead_lettered)
            and (self.created_after_ms is None or state.created_ms >= self.created_after_ms)
            and (self.created_before_ms is None or state.created_ms < self.created_before_ms)
            and state.id.startswith(self.prefix)
        )

    def fits_spec(self, spec: Mapping[str, object]) -> bool:
        """Whether the caller's own words answer the question."""
        metadata = spec.get("metadata")
        known = metadata if isinstance(metadata, dict) else {}
        return (self.user_id is None or spec.get("userId") == self.user_id) and all(
            known.get(key) == value for key, value in self.metadata
        )


def read_filter(query: Sequence[tuple[str, str]]) -> JobFilter:
    """Read the filters of a query. Raises Problem `bad_parameter`."""
    single: dict[str, str] = {}
    statuses = set()
    metadata = []
    for name, value in query:
        if len(value) > MAX_TEXT:
            raise Problem("bad_parameter", f"{name[:64]} is too long")
        if name == "status":
            statuses |= {_status(each) for each in value.split(",")}
        elif name.startswith(METADATA):
            metadata.append((name[len(METADATA) :], value))
        elif name in NAMES and name not in single:
            single[name] = value
        else:
            raise Problem("bad_parameter", f"There is no filter {name[:64]!r}, or it is given twice")
    asked = sorted((name, value) for name, value in query if name not in ("limit", "cursor"))
    return JobFilter(
        frozenset(statuses),
        single.get("model"),
        single.get("userId"),
        _one_of(single, "priority", _PRIORITIES),
        single.get("pool"),
        read_instant_ms(single, "createdAfter"),
        read_instant_ms(single, "createdBefore"),
        None if (dead := _one_of(single, "deadLettered", frozenset({"true", "false"}))) is None else dead == "true",
        _prefix(single.get("q", "")),
        tuple(sorted(metadata)),
        repr(asked),
    )


def filter_of(wanted: JobsFilter) -> JobFilter:
    """Return the question that a body asks, about jobs that have not ended."""
    return JobFilter(
        frozenset(JobStatus(name) for name in wanted.status or _OPEN),
        wanted.model,
        wanted.user_id,
        wanted.priority,
        wanted.pool,
        None if wanted.created_after is None else max(0, ms_of(wanted.created_after)),
        None if wanted.created_before is None else max(0, ms_of(wanted.created_before)),
        prefix=wanted.q or "",
        metadata=tuple(sorted(wanted.metadata.items())),
        canonical=wanted.model_dump_json(exclude_none=True),
    )


def _status(text: str) -> JobStatus:
    try:
        return JobStatus("cancelled" if text == "canceled" else text)
    except ValueError:
        raise Problem("bad_parameter", "status is one of " + ", ".join(JobStatus)) from None


def _one_of(values: Mapping[str, str], name: str, allowed: frozenset[str]) -> str | None:
    value = values.get(name)
    if value is not None and value not in allowed:
        raise Problem("bad_parameter", f"{name} is one of " + ", ".join(sorted(allowed)))
    return value


def _prefix(text: str) -> str:
    if text and not _PREFIX.fullmatch(text):
        raise Problem("bad_parameter", "q is the beginning of a job id, job_...")
    return text


def read_instant_ms(query: Mapping[str, str], name: str) -> int | None:
    """Return a time of the query. Raises Problem `bad_parameter`."""
    text = query.get(name)
    if text is None:
        return None
    try:
        # A plus sign that was not escaped arrives as a space.
        moment = datetime.fromisoformat(text.replace(" ", "+"))
        if moment.tzinfo is None:
            raise ValueError("no offset")
        return max(0, ms_of(moment))
    except (ValueError, OverflowError):
        raise Problem("bad_parameter", f"{name} is an RFC 3339 time with an offset") from None


def _id_bound(real_ms: int) -> str:
    """Return the smallest id that a job minted at this time could have."""
    return "job_" + encode_base32(max(0, min(real_ms, (1 << 48) - 1)) << RANDOM_BITS, _BASE32_OF_MS)
