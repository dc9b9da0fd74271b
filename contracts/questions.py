"""What other processes ask the leader of a pool, and what it answers: what the verbs `ask` and `answer` carry. Pure.

An answer says how things stand in the leader's fold at that moment; nothing of it is kept. Fields that one side does
not know are left out or ignored, so that two versions can talk during an upgrade.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

import orjson

Kind = Literal["place", "why", "backlog", "use"]
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Question:
    """`place` and `why`: about a job (subject) of a tenant; `use`: of a tenant (subject); `backlog`: of the pool."""

    kind: Kind
    subject: str = ""
    tenant_id: str = ""  # the leader answers nothing about a job of somebody else
    target_ms: int = 0  # backlog: in what time the waiting work should be done


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job does not start now, and what would have to change. `since_ms`: wall time, None when nobody knows."""

    code: str
    detail: str
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Spot:
    """A slot that could run the job. `free_in_ms` 0: now. `warm`: it has the model."""

    worker_id: str
    slot: int
    device: str
    kind: str
    warm: bool
    free_in_ms: int


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where a job stands. `ahead`: jobs that would be served before it as things stand; None: it does not wait."""

    ahead: int | None = None
    eta_ms: int | None = None  # until it starts; None: nobody can say
    basis: str | None = None  # what the ETA rests on


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits."""

    place: JobPlace = JobPlace()
    reasons: tuple[Reason, ...] = ()
    would_run_on: tuple[Spot, ...] = ()


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in the pool, and how many workers of the usual size would do it in the time asked for."""

    jobs: int = 0  # eligible now; none that waits for its time, a pause, a limit or a budget
    work_ms: int = 0  # their device time, as far as estimates know
    oldest_ms: int = 0  # how long the oldest of them has waited
    desired_workers: int = 0
    longest_ms: int = 0  # how long the attempt that has run longest has been running
    idle_ms: Mapping[str, int] = field(default_factory=dict)  # slot time that was idle while jobs waited, by reason


@dataclass(frozen=True, slots=True)
class TenantUse:
    """What a tenant uses of its limits in the pool."""

    running: int = 0  # from the first offer to the end of the attempt, as its concurrency counts
    gpu_ms_today: int = 0
    resets_at_ms: int = 0  # when the day of the budget ends


Answer = JobPlace | Explanation | Backlog | TenantUse


def write_questions(questions: Sequence[Question]) -> bytes:
    """Return a batch of questions as JSON."""
    return orjson.dumps(questions)


def read_questions(data: bytes) -> list[Question | None]:
    """Read a batch; None for a question that this version does not understand.

    >>> read_questions(write_questions([Question("use", "t_a")]))
    [Question(kind='use', subject='t_a', tenant_id='', target_ms=0)]
    """
    return [
        None if raw.get("kind") not in _KINDS else _read(Question, raw) for raw in _objects(data) if raw is not None
    ]


def write_answers(answers: Sequence[Answer | None]) -> bytes:
    """Return the answers to a batch as JSON, in the order of its questions."""
    return orjson.dumps(answers)


def read_answers(data: bytes, questions: Sequence[Question]) -> list[Answer | None]:
    """Read the answers to `questions`; None for what was not answered, or cannot be read."""
    raw = _objects(data)
    raw += [None] * (len(questions) - len(raw))
    return [None if told is None else _KINDS[asked.kind](told) for asked, told in zip(questions, raw, strict=False)]


def _explanation(raw: Mapping[str, Any]) -> Explanation:
    return Explanation(
        _read(JobPlace, raw.get("place") or {}),
        tuple(_read(Reason, each) for each in raw.get("reasons") or ()),
        tuple(_read(Spot, each) for each in raw.get("would_run_on") or ()),
    )


_KINDS: dict[str, Any] = {
    "place": lambda raw: _read(JobPlace, raw),
    "why": _explanation,
    "backlog": lambda raw: _read(Backlog, raw),
    "use": lambda raw: _read(TenantUse, raw),
}


def _read(kind: type[A], raw: Mapping[str, Any]) -> A:
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in raw.items() if name in known})


def _objects(data: bytes) -> list[dict[str, Any] | None]:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return []
    return [each if isinstance(each, dict) else None for each in found] if isinstance(found, list) else []
