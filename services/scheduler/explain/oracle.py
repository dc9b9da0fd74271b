"""Answers to the questions of other processes. Pure but for its memory."""

from contracts import questions as q
from services.scheduler.fold.state import PoolState


class Oracle:
    """One for each term of leadership."""

    def __init__(self, state: PoolState) -> None:
        self._state = state

    def answer(self, question: q.Question, now_ms: int) -> q.Answer | None:
        """Answer one question. A job that is unknown, or somebody else's, is answered as one that does not wait."""
        return None
