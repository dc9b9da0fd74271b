"""Questions of other processes, answered from the leader's fold between its turns.

Promises: a reader of its own, so that no turn waits for a question; a bounded number of answers at once, and none that
is asked too long ago for anybody to wait for; at most one call of the store under way. Whatever goes wrong here costs
an answer, never a turn.
"""

import asyncio
import random
from collections import deque
from typing import Protocol

import structlog

from contracts import questions as q
from contracts.errors import HeadraceError, StoreUnavailable
from contracts.store import Store
from contracts.store.log import StreamReader, pause
from contracts.store.questions import Batch, Reply, as_batch
from contracts.telemetry import Logger

log: Logger = structlog.get_logger(service="scheduler")
BLOCK_MS = 1_000
READ_COUNT = 64
MOST_WAITING = 64  # batches; the oldest go first, since their askers give up first
MOST_AT_ONCE = 16  # questions between two turns; a batch that was begun is finished
LONGEST_WAIT_MS = 400  # longer ago nobody waits for the answer


class Oracle(Protocol):
    """Answers a question from the fold as it is now; None for what is not known or not the asker's."""

    def answer(self, question: q.Question, now_ms: int) -> q.Answer | None:
        """Answer one question."""


class Answering:
    """Run `follow` as a task; call `answer` between turns."""

    def __init__(self, store: Store, pool: str, token: str, oracle: Oracle, wake: asyncio.Event) -> None:
        self._store, self._pool, self._token, self._oracle, self._wake = store, pool, token, oracle, wake
        self._stream: StreamReader = store.questions.asked(pool)
        self._waiting: deque[Batch] = deque(maxlen=MOST_WAITING)
        self._saying: asyncio.Task[None] | None = None

    async def follow(self, stop: asyncio.Event) -> None:
        """Read questions until `stop`."""
        failures = 0
        while not stop.is_set():
            try:
                messages = await self._stream.messages(READ_COUNT, BLOCK_MS)
            except StoreUnavailable:
                failures += 1
                await pause(failures, stop, random.random())
                continue
            failures = 0
            self._waiting.extend(as_batch(message) for message in messages)
            if messages:
                self._wake.set()

    def answer(self, now_ms: int) -> None:
        """Answer some of what is waiting; the rest next time."""
        if self._saying is not None and not self._saying.done():
            return  # the store is slow; the task wakes us when it is through
        said: list[Reply] = []
        count = 0
        while self._waiting and count < MOST_AT_ONCE:
            batch = self._waiting.popleft()
            if now_ms - batch.asked_ms > LONGEST_WAIT_MS:
                continue
            questions = q.read_questions(batch.questions)
            count += len(questions)
            answers = [None if asked is None else self._answer(asked, now_ms) for asked in questions]
            said.append(Reply(batch.asker, batch.number, q.write_answers(answers)))
        if said:
            self._saying = asyncio.create_task(self._say(said))

    async def aclose(self) -> None:
        """Wait for what is being said."""
        if self._saying is not None:
            await asyncio.gather(self._saying, return_exceptions=True)

    def _answer(self, question: q.Question, now_ms: int) -> q.Answer | None:
        try:
            return self._oracle.answer(question, now_ms)
        except Exception as error:  # a fault in explaining must not end a term of leadership
            log.error(
                "answer_failed", pool=self._pool, kind=question.kind, subject=question.subject, reason=repr(error)
            )
            return None

    async def _say(self, said: list[Reply]) -> None:
        try:
            await self._store.questions.answer(self._pool, self._token, said)
        except HeadraceError:
            return  # whoever asked goes on without
        finally:
            if self._waiting:
                self._wake.set()
