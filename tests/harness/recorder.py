"""What live projections showed while a stack ran, to be held against the log afterwards."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from contracts.errors import HeadraceError
from contracts.job import JobState
from contracts.job_fold import fold
from tests.harness.audit import small
from tests.harness.stack import POOL, Stack

FOLLOWERS = 4
RECENT = 40  # jobs: older ones change no more
PAUSE_S = 0.01
# Of a job as the API shows it, what is no fold of its events: its place in the queue, and when it will be forgotten.
_NOT_FOLDED = ("queue", "expiresAt")


@dataclass(slots=True)
class Recorder:
    """States by job and sequence, as the store's hashes held them, and as the API showed them."""

    stack: Stack
    chance: random.Random
    states: dict[tuple[str, int], JobState] = field(default_factory=dict)
    views: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)

    async def follow(self) -> None:
        """Look at jobs at random until cancelled; what cannot be answered in the turmoil is left out."""
        while True:
            await asyncio.sleep(PAUSE_S)
            if self.stack.jobs:
                with contextlib.suppress(HeadraceError, aiohttp.ClientError, TimeoutError):
                    await self._look(self.chance.choice(self.stack.jobs[-RECENT:]))

    async def _look(self, job_id: str) -> None:
        history = await self.stack.store.jobs.history(POOL, job_id, limit=0)
        if history is not None:
            self.states[job_id, history.state.sequence] = history.state
        answer = await self.stack.request("GET", f"/v1/jobs/{job_id}")
        if answer.status == 200:
            self.views[job_id, answer.json["sequence"]] = answer.json

    def compare_states(self, most: int) -> int:
        """Fold the log up to as many recorded positions, at random, and compare; returns how many there were."""
        chosen = self.chance.sample(sorted(self.states), min(most, len(self.states)))
        for job_id, sequence in chosen:
            folded = fold(job_id, self.stack.log.of(job_id)[:sequence])
            assert small(folded) == self.states[job_id, sequence]
        return len(chosen)

    async def compare_views(self, most: int) -> int:
        """Ask for the job as it was at as many recorded positions, and compare; returns how many there were."""
        chosen = self.chance.sample(sorted(self.views), min(most, len(self.views)))
        for key in chosen:
            was = self.views[key]
            then = (await self.stack.request("GET", f"/v1/jobs/{key[0]}?at={was['position']}")).json
            assert _folded(then) == _folded(was)
        return len(chosen)


def _folded(view: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in view.items() if name not in _NOT_FOLDED}


@contextlib.asynccontextmanager
async def recorded(stack: Stack, seed: int) -> AsyncIterator[Recorder]:
    """Record while the block runs."""
    recorder = Recorder(stack, random.Random(seed))
    following = [asyncio.create_task(recorder.follow()) for _ in range(FOLLOWERS)]
    try:
        yield recorder
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
