"""Replies of the function library as values."""

from dataclasses import dataclass
from typing import NamedTuple

import orjson

from contracts.store.words import Word


class Reply(NamedTuple):
    """A word, the position of the last event written (or of the job, when refused) and the job's sequence.

    `limit`: of admission, when that is why it was REFUSED.
    """

    word: Word
    position: str = ""
    sequence: int = 0
    limit: str = ""

    @property
    def applied(self) -> bool:
        """Whether it is so, now or already."""
        return self.word is Word.APPLIED


class Admission(NamedTuple):
    """`limit`, `used`: when REFUSED. `same_as`: the job that holds the dedup key, when `state` is `same-as`.

    Other states: '', `repeat`, `forgotten`, `refused-before`, `too-late`, `no-log`.
    """

    word: Word
    position: str = ""
    sequence: int = 0
    state: str = ""
    limit: str = ""
    used: int = 0
    same_as: str = ""


class Started(NamedTuple):
    """Reply of a start; `body` holds the lines of the job's body when APPLIED."""

    word: Word
    position: str = ""
    sequence: int = 0
    body: bytes = b""


class Verdict(NamedTuple):
    """What became of one decision; `refused_by` says whose guard forbade it: `job`, `worker` or `archive`."""

    word: Word
    position: str = ""
    refused_by: str = ""

    @property
    def applied(self) -> bool:
        """Whether it is in the log."""
        return self.word is Word.APPLIED


@dataclass(frozen=True, slots=True)
class TurnReply:
    """Reply of a turn: server time, the position to fold before the next turn, one Verdict for each decision."""

    word: Word
    now_ms: int = 0
    last: str = ""
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True)
class Beat:
    """Reply of a heartbeat. `held`: for each attempt listed `1` held, `0` fenced, `c` held and to be cancelled."""

    word: Word
    counter: int = 0
    state: str = ""
    held: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Submits:
    """What a tenant's rate leaves it. `wait_ms` above 0: this one was one too many, the next may come after that."""

    left: int
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """Reply of an Idempotency-Key; CONFLICT: another request's, REFUSED: too many submits.

    `state`: new, pending or a job status. `submits` is None for a tenant without a rate.
    """

    word: Word
    job_id: str = ""
    pool: str = ""
    state: str = ""
    submits: Submits | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """APPLIED with how the endpoint does now: failures in a row, since when, up to which mark it was warned about.

    `has_more`: something else waits for it, due or not.
    """

    word: Word
    position: str = ""
    row: int = 0
    since_ms: int = 0
    warned: int = 0
    has_more: bool = False

    @property
    def applied(self) -> bool:
        """Whether it was recorded by this call."""
        return self.word is Word.APPLIED


@dataclass(frozen=True, slots=True)
class Redelivered:
    """APPLIED with the id under which it is sent now; REFUSED while it waits for another; GONE."""

    word: Word
    id: str = ""


def texts(raw: object) -> list[str]:
    """Return a flat reply as texts."""
    assert isinstance(raw, list)
    return [item.decode() if isinstance(item, bytes) else str(item) for item in raw]


def reply(raw: object) -> Reply:
    """Read `{word, position, sequence}`; a refusal of `append` answers `{word, sequence, position}`."""
    parts = [*texts(raw), "", "", ""]
    word = Word(parts[0])
    position, sequence = (parts[1], parts[2]) if "-" in parts[1] or not parts[1] else (parts[2], parts[1])
    return Reply(word, position, int(sequence or 0), parts[3] if word is Word.REFUSED else "")


def admission(raw: object) -> Admission:
    """Read the reply of `admit`."""
    parts = [*texts(raw), "", "", "", ""]
    word = Word(parts[0])
    if word is Word.REFUSED:
        return Admission(word, limit=parts[1], used=int(parts[2]))
    if word is Word.GONE:
        return Admission(word, state=parts[1])
    return Admission(word, parts[1], int(parts[2] or 0), parts[3], same_as=parts[4])


def started(raw: object) -> Started:
    """Read the reply of `start`."""
    assert isinstance(raw, list)
    parts = [*texts(raw[:3]), "", ""]
    word = Word(parts[0])
    if word is Word.APPLIED:
        return Started(word, parts[1], int(parts[2]), raw[3] if isinstance(raw[3], bytes) else b"")
    ordinary = reply(raw)
    return Started(word, ordinary.position, ordinary.sequence)


def turn(raw: object) -> TurnReply:
    """Read the reply of `turn`."""
    parts = texts(raw)
    if parts[0] != Word.APPLIED:
        return TurnReply(Word(parts[0]))
    verdicts = tuple(Verdict(Word(word), *rest) for word, *rest in orjson.loads(parts[3]))
    return TurnReply(Word.APPLIED, int(parts[1]), parts[2], verdicts)


def beat(raw: object) -> Beat:
    """Read the reply of `heartbeat`."""
    parts = texts(raw)
    if parts[0] != Word.APPLIED:
        return Beat(Word(parts[0]))
    return Beat(Word.APPLIED, int(parts[1]), parts[2], tuple(parts[3:]))


def key_claim(raw: object) -> KeyClaim:
    """Read the reply of `claim_key`."""
    parts = [*texts(raw), "", ""]
    word = Word(parts[0])
    if word is Word.REFUSED:
        return KeyClaim(word, submits=submits(raw))
    return KeyClaim(word, parts[1], parts[2], parts[3], Submits(int(parts[4])) if parts[4] else None)


def submits(raw: object) -> Submits:
    """Read the reply of `take_submit`."""
    parts = [*texts(raw), "0"]
    return Submits(int(parts[1]), int(parts[2]))
