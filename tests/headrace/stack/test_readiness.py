"""When a stack counts as ready."""

from typing import Any

import pytest

from contracts.errors import Unavailable
from headrace.client import Answer, Problem
from headrace.stack.readiness import wait_ready


class Ingest:
    """An ingest whose verdict is red for a reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def try_get(self, path: str) -> Answer:
        if path == "/readyz":
            raise Problem(503, {"status": "unavailable", "reason": self._reason})
        return Answer(200, {}, {"data": []})  # type: ignore[arg-type]


async def test_what_a_leader_set_aside_keeps_no_stack_from_starting_and_anything_else_does() -> None:
    scarred: Any = Ingest("scheduler_mismatch: pool default has set 1 of its jobs and slots aside")
    leaderless: Any = Ingest("no_scheduler: pool default has had no leader for 11 s")

    await wait_ready(scarred, (), limit_s=0)
    with pytest.raises(Unavailable):
        await wait_ready(leaderless, (), limit_s=0)
