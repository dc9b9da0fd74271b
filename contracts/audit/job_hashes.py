"""The hashes of jobs and the counters of admission, made again from the log, as the store has them. Pure.

Promises: after any prefix of the log, `jobs` holds the fields that the hashes had then, but for what only guards
repeats (the last write ids). Memory follows the jobs the store holds: a forgotten one is dropped.
"""

from collections.abc import Iterator, Mapping

from contracts.errors import Corrupt
from contracts.events import Event, JobCreated, JobForgotten
from contracts.job import FIELDS, TERMINAL, TRANSITIONS, JobStatus, legal
from contracts.job_changes import GONE, NOW, OFFER_PREFIX, Changes, changes
from contracts.positions import entry_ms
from contracts.wire import Entry

Fields = dict[str, str]
JOB_TYPES = frozenset(event_type for _, event_type in TRANSITIONS)
FOLDED = frozenset({"n", "p", *FIELDS.values()})
ERASED = "job.erased"
_CREATED = "job.created"
_ENDED = frozenset(str(status) for status in TERMINAL)


class JobHashes:
    """All jobs of one log. `is_whole`: the log was read from its very beginning, so each job must begin in it."""

    def __init__(self, *, is_whole: bool) -> None:
        self.jobs: dict[str, Fields] = {}
        self.digests: dict[str, str] = {}  # of their bodies, as they were admitted
        self.erased: set[str] = set()
        self.headless: set[str] = set()  # their beginning is not in the log: what they are now is not known
        self.is_whole = is_whole

    def apply(self, entry: Entry) -> Iterator[tuple[str, str]]:
        """Fold one entry of a job; yields (kind, sentence) of what cannot be, then goes on as if it were right."""
        fields = self.jobs.get(entry.subject)
        if fields is None:
            fields = self._begin(entry)
            if fields is None:
                return
            if not fields:
                yield "sequence_gap", f"{entry.subject}: event {entry.sequence} is the first there is"
                return
        yield from _gaps(fields, entry)
        try:
            event = entry.event()
        except Corrupt as error:
            yield "unreadable", error.reason
            event = None
        if event is not None and not legal(_status(fields), entry.type):
            yield "illegal_transition", f"{entry.subject}: {entry.type} is not possible while {fields.get('s')}"
        if event is not None:
            _set(fields, changes(event, entry.fence), entry_ms(entry.position))
            self._note_body(entry, event)
        fields["n"], fields["p"] = str(entry.sequence), entry.position
        if entry.fence != int(fields.get("f", 0)):
            yield "wrong_fence", f"{entry.subject}: fence {entry.fence} where {fields.get('f', 0)} was held"
        if entry.type == JobForgotten.TYPE:
            del self.jobs[entry.subject]
            self.digests.pop(entry.subject, None)
            self.erased.discard(entry.subject)

    def _note_body(self, entry: Entry, event: Event) -> None:
        if isinstance(event, JobCreated):
            self.digests[entry.subject] = event.body_digest
        elif entry.type == ERASED:
            self.erased.add(entry.subject)

    def _begin(self, entry: Entry) -> Fields | None:
        """Return the fields of a job that begins; {} where its beginning is lost, None where that is no wonder."""
        if entry.type == _CREATED and entry.sequence == 1:
            self.headless.discard(entry.subject)
            return self.jobs.setdefault(entry.subject, {"n": "0", "p": ""})
        is_known = entry.subject in self.headless
        self.headless.add(entry.subject)
        if entry.type == JobForgotten.TYPE:
            self.headless.discard(entry.subject)
        return {} if self.is_whole and not is_known else None

    def counters(self) -> dict[str, str]:
        """Return the counters that admission reads, as the store has them."""
        jobs, total, of_tenant = 0, 0, dict[str, int]()
        for fields in self.jobs.values():
            if not is_ended(fields):
                size, tenant = int(fields.get("u", 0)), fields.get("t", "")
                jobs, total = jobs + 1, total + size
                of_tenant[tenant] = of_tenant.get(tenant, 0) + size
        counts = {"jobs": jobs, "bytes": total} | {f"b:{tenant}": size for tenant, size in of_tenant.items() if size}
        return {name: str(count) for name, count in counts.items()}


def is_ended(fields: Mapping[str, str]) -> bool:
    """Whether the job's run has ended."""
    return fields.get("s") in _ENDED


def letter_of(fields: Mapping[str, str]) -> float | None:
    """Return under which ms a job is listed among the dead letters; None: it is none."""
    return float(fields["da"]) if "dl" in fields and "da" in fields else None


def folded(raw: Mapping[str, str]) -> Fields:
    """Return of a live hash what follows from the log."""
    return {name: text for name, text in raw.items() if name in FOLDED or name.startswith(OFFER_PREFIX)}


def _gaps(fields: Fields, entry: Entry) -> Iterator[tuple[str, str]]:
    if entry.sequence != int(fields["n"]) + 1:
        yield "sequence_gap", f"{entry.subject}: event {entry.sequence} follows {fields['n']}"
    elif entry.previous != fields["p"]:
        yield "wrong_back_pointer", f"{entry.subject}: names {entry.previous!r} before it, where {fields['p']!r} is"


def _status(fields: Fields) -> JobStatus | None:
    return JobStatus(fields["s"]) if "s" in fields else None


def _set(fields: Fields, changed: Changes, now_ms: int) -> None:
    for name, value in changed.items():
        if name == OFFER_PREFIX + "*":
            for offer in [each for each in fields if each.startswith(OFFER_PREFIX)]:
                del fields[offer]
        elif value == GONE:
            fields.pop(name, None)
        else:
            fields[name] = str(now_ms + int(value[2:] or 0)) if value.startswith(NOW) else str(value)
