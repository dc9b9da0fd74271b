"""Questions to the leaders of the pools: batched on the way out, answered by one reader for each pool.

Promises: whoever asks waits `PATIENCE_S` at most and then goes on with None, never with an error. A pool that nobody
leads answers so at once; one whose leader said nothing to a question is not asked for `SILENCE_S`, so that not every
request waits for it. A reader runs only while questions come.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from contracts import questions as q
from contracts.errors import HeadraceError
from contracts.store import Store
from contracts.store.log import StreamReader
from contracts.store.questions import as_reply
from contracts.waiting import wait
from services.ingest.patience import Patience

PATIENCE_S = 0.25  # and the tick of the one timer for all of them: 0.3 s in all
SILENCE_S = 1.0
LINGER_S = 0.01  # for questions to gather while a batch is on its way
MOST_TOGETHER = 16
BLOCK_MS = 1_000
IDLE_S = 10.0  # without a question, before the reader stops

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Asked:
    question: q.Question
    answer: "asyncio.Future[q.Answer | None]"
    at_s: float


@dataclass(slots=True)
class _Line:
    """What is asked of one pool."""

    waiting: list[_Asked] = field(default_factory=list)
    sent: dict[int, list[_Asked]] = field(default_factory=dict)  # by number of the batch
    number: int = 0
    sender: "asyncio.Task[None] | None" = None
    reader: "asyncio.Task[None] | None" = None
    stream: StreamReader | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    heard_s: float = 0.0  # when the last answer came
    quiet_until_s: float = 0.0


class Asker:
    """One for each process."""

    def __init__(self, store: Store, asker_id: str, now_s: Callable[[], float]) -> None:
        self._store, self._id, self._now_s = store, asker_id, now_s
        self._lines: dict[str, _Line] = {}
        self._patience = Patience(PATIENCE_S)
        self._is_closing = False

    async def place(self, pool: str, tenant_id: str, job_id: str) -> q.JobPlace | None:
        """Return where a job stands; None when nobody says."""
        return _as(q.JobPlace, await self._ask(pool, q.Question("place", job_id, tenant_id)))

    async def why(self, pool: str, tenant_id: str, job_id: str) -> q.Explanation | None:
        """Return why a job waits; None when nobody says."""
        return _as(q.Explanation, await self._ask(pool, q.Question("why", job_id, tenant_id)))

    async def backlog(self, pool: str, target_ms: int) -> q.Backlog | None:
        """Return what waits in a pool; None when nobody says."""
        return _as(q.Backlog, await self._ask(pool, q.Question("backlog", target_ms=target_ms)))

    async def use(self, pool: str, tenant_id: str) -> q.TenantUse | None:
        """Return what a tenant uses of its limits in a pool; None when nobody says."""
        return _as(q.TenantUse, await self._ask(pool, q.Question("use", tenant_id)))

    async def aclose(self) -> None:
        """Stop; whoever still waits is answered None."""
        self._is_closing = True
        tasks = {task for line in self._lines.values() for task in (line.sender, line.reader) if task is not None}
        while tasks:  # a cancel that comes while a connection is opened may be lost
            for task in tasks:
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=0.05)
        for line in self._lines.values():
            _give_up(line)

    async def _ask(self, pool: str, question: q.Question) -> q.Answer | None:
        line = self._lines.setdefault(pool, _Line())
        if self._is_closing or self._now_s() < line.quiet_until_s:
            return None
        asked = _Asked(question, asyncio.get_running_loop().create_future(), self._now_s())
        line.waiting.append(asked)
        if line.sender is None or line.sender.done():
            line.sender = asyncio.create_task(self._send(pool, line))
        try:
            return await self._patience.within(asked.answer)
        except TimeoutError:
            if line.heard_s < asked.at_s:  # one that is only busy answers others meanwhile
                line.quiet_until_s = self._now_s() + SILENCE_S
            return None

    async def _send(self, pool: str, line: _Line) -> None:
        """Send what waits, a batch at a time; the next one gathers until an answer is here, or for a moment."""
        while line.waiting:
            batch, line.waiting = line.waiting[:MOST_TOGETHER], line.waiting[MOST_TOGETHER:]
            line.number += 1
            line.sent[line.number] = batch
            self._listen(pool, line)
            line.answered.clear()
            try:
                asked = q.write_questions([each.question for each in batch])
                if not await self._store.questions.ask(pool, self._id, line.number, asked):
                    self._hear_nothing(line)
                    return
            except HeadraceError:
                self._hear_nothing(line)
                return
            await wait(line.answered, LINGER_S)

    def _hear_nothing(self, line: _Line) -> None:
        line.quiet_until_s = self._now_s() + SILENCE_S
        _give_up(line)

    def _listen(self, pool: str, line: _Line) -> None:
        if line.reader is None or line.reader.done():
            if line.stream is None:
                line.stream = self._store.questions.answered(pool, self._id)
            line.reader = asyncio.create_task(self._read(line, line.stream))

    async def _read(self, line: _Line, stream: StreamReader) -> None:
        asked_s = self._now_s()
        while not self._is_closing and (line.sent or self._now_s() - asked_s < IDLE_S):
            asked_s = self._now_s() if line.sent else asked_s
            _forget_answered(line)
            try:
                messages = await stream.messages(block_ms=BLOCK_MS)
            except HeadraceError:
                self._hear_nothing(line)
                return
            for message in messages:
                reply = as_reply(message, self._id)
                line.heard_s = self._now_s()
                batch = line.sent.pop(reply.number, [])
                for each, answer in zip(batch, q.read_answers(reply.answers, [a.question for a in batch]), strict=True):
                    _tell(each, answer)
                line.answered.set()


def _tell(asked: _Asked, answer: q.Answer | None) -> None:
    if not asked.answer.done():
        asked.answer.set_result(answer)


def _give_up(line: _Line) -> None:
    for batch in (line.waiting, *line.sent.values()):
        for asked in batch:
            _tell(asked, None)
    line.waiting, line.sent = [], {}


def _forget_answered(line: _Line) -> None:
    """Drop the batches that nobody waits for any more: their answers are late or will never come."""
    line.sent = {number: batch for number, batch in line.sent.items() if any(not a.answer.done() for a in batch)}


def _as(kind: type[T], answer: q.Answer | None) -> T | None:
    return answer if isinstance(answer, kind) else None
