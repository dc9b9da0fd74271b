"""Dead letters: jobs that failed for good and wait for a person, and what an operator does with many of them. Pure."""

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

import orjson

from contracts.errors import Corrupt

Verb = Literal["redrive", "discard"]
MOST_FAILURES = 100  # that are told one by one


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One as its list has it. `has_body`: what it was asked to do is still known."""

    id: str
    failed_ms: int
    has_body: bool
    tenant_id: str
    model: str
    code: str
    attempt: int
    run: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters; an empty field means any. Times are of the failure, from `since_ms` to before `until_ms`."""

    pool: str = ""
    tenant_id: str = ""
    model: str = ""  # `name@version`, or `name` for all its versions
    code: str = ""
    since_ms: int = 0
    until_ms: int = 0  # 0: no end

    def fits(self, letter: DeadLetter) -> bool:
        """Whether a dead letter of a fitting pool is meant.

        >>> letter = DeadLetter("job_x", 5, True, "t_a", "draw@2", "worker_lost", 3, 1, 1)
        >>> LetterFilter(model="draw", until_ms=6).fits(letter), LetterFilter(until_ms=5).fits(letter)
        (True, False)
        """
        return (
            self.tenant_id in ("", letter.tenant_id)
            and self.model in ("", letter.model, letter.model.partition("@")[0])
            and self.code in ("", letter.code)
            and self.since_ms <= letter.failed_ms
            and (not self.until_ms or letter.failed_ms < self.until_ms)
        )


@dataclass(frozen=True, slots=True)
class Operation:
    """One request about many dead letters, and how far it is. `done_ms` 0: under way.

    Each job of `hand` is done, or not, as its events say; all others before `place` are counted.
    """

    id: str
    verb: Verb
    by: str = ""
    reason: str = ""
    rate: float = 10.0  # jobs a second, at most
    wanted: LetterFilter = field(default_factory=LetterFilter)
    ids: tuple[str, ...] | None = None  # these that are still to be done, in place of a filter
    fingerprint: str = ""  # of the request, for its repeats
    asked_ms: int = 0
    done_ms: int = 0
    is_stopped: bool = False
    place: tuple[str, int, str] = ("", 0, "")  # pool, when it failed, id: of the last one that was looked at
    hand: tuple[str, ...] = ()
    later: tuple[str, ...] = ()  # of `ids`: those that there was no room for
    not_before_ms: int = 0  # the next round; 0 while one is under way
    done: int = 0
    deferred: int = 0  # in this round: their tenant's queue, or the pool, is full
    failed: int = 0
    failures: tuple[tuple[str, str], ...] = ()  # the first of them: job, code

    def to_json(self) -> bytes:
        """Return what is stored."""
        return orjson.dumps(asdict(self))

    def counted(self, job_id: str, outcome: str) -> "Operation":
        """Return it with one job of its hand dealt with: `done`, `deferred`, or the code of a failure."""
        left = replace(self, hand=tuple(each for each in self.hand if each != job_id))
        if outcome == "done":
            return replace(left, done=self.done + 1)
        if outcome == "deferred":
            later = (*self.later, job_id) if self.ids is not None else ()
            return replace(left, deferred=self.deferred + 1, later=later)
        failures = (*self.failures, (job_id, outcome))[:MOST_FAILURES]
        return replace(left, failed=self.failed + 1, failures=failures)

    def next_round(self) -> "Operation":
        """Return it at the beginning again, for those that there was no room for; who failed is met again, too."""
        begun = replace(self, place=("", 0, ""), deferred=0, later=(), not_before_ms=0)
        return replace(begun, ids=self.later) if self.ids is not None else replace(begun, failed=0, failures=())


def read_operation(name: str, text: str) -> Operation:
    """Read what is stored. Raises Corrupt."""
    try:
        kept: dict[str, Any] = orjson.loads(text)
        known = {name: kept[name] for name in _NAMES & kept.keys()}
        for each in ("hand", "later", "place"):
            known[each] = tuple(known.get(each, ()))
        known["wanted"] = LetterFilter(**{name: kept["wanted"][name] for name in _ASKED & kept["wanted"].keys()})
        known["failures"] = tuple((job_id, code) for job_id, code in kept["failures"])
        known["ids"] = None if kept["ids"] is None else tuple(kept["ids"])
        return Operation(**known)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corrupt(name, "the operation cannot be read") from error


_NAMES = {known.name for known in fields(Operation)}  # another version may have written more
_ASKED = {known.name for known in fields(LetterFilter)}
