"""Tasks that take longer than a request and outlive the process that works on them: asked for by one process, done by
whichever holds the lease. Backfills of webhooks, redrives of dead letters.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from redis.asyncio import Redis

from contracts.errors import Corrupt, StoreUnavailable
from contracts.store import replies
from contracts.store.batcher import Batcher
from contracts.store.clients import read_hash
from contracts.store.words import Word

KEPT_DONE_MS = 86_400_000  # a day, to be looked at
TRIES = 20
MOST_AT_ONCE = 100  # of a pool
MOST_KNOWN = 400  # those that are over among them: all are read each time that one is claimed


class Task(Protocol):
    """What is asked, and how far it is. `done_ms` 0: under way."""

    @property
    def id(self) -> str: ...
    @property
    def asked_ms(self) -> int: ...
    @property
    def done_ms(self) -> int: ...
    def to_json(self) -> bytes:
        """Return what is stored."""


T = TypeVar("T", bound=Task)
KeyOf = Callable[[str], str]


class Tasks(Generic[T]):
    """Calls about tasks of one kind. `places`: keys of the tasks and of their leases; `read`: (name, JSON) -> task."""

    def __init__(
        self, batcher: Batcher, client: Redis, places: tuple[KeyOf, KeyOf], read: Callable[[str, str], T]
    ) -> None:  # fmt: skip
        self._call, self._client, self._places, self._read = batcher.call, client, places, read

    async def ask(self, pool: str, task: T) -> bool:
        """Write one down, once for its id; False when the pool has too many under way."""
        args = [task.id, task.to_json(), MOST_AT_ONCE, MOST_KNOWN]
        return replies.texts(await self._call("ask_task", [self._places[0](pool)], args))[0] == Word.APPLIED

    async def all(self, pool: str) -> tuple[T, ...]:
        """Return those of a pool, oldest first; one that cannot be read is left out."""
        found: list[T] = []
        for name, text in (await read_hash(self._client, self._places[0](pool))).items():
            with suppress(Corrupt):
                found.append(self._read(name, text))
        return tuple(sorted(found, key=lambda task: (task.asked_ms, task.id)))

    async def claim(self, pool: str, who: str, lease_ms: int, now_ms: int = 0) -> T | None:
        """Claim the oldest that nobody works on; it is ours again and again, and another's once the lease ran out.

        Raises Corrupt.
        """
        args = [now_ms, who, lease_ms, KEPT_DONE_MS]
        raw = await self._call("claim_task", self._both(pool), args)
        assert isinstance(raw, bytes)
        return self._read(pool, raw.decode()) if raw else None

    async def keep(self, pool: str, who: str, lease_ms: int, task: T, now_ms: int = 0) -> bool:
        """Write down how far it is, and go on; False when it is another's by now, or gone."""
        args = [now_ms, who, lease_ms, task.id, task.to_json(), "1" if task.done_ms else ""]
        return replies.texts(await self._call("keep_task", self._both(pool), args))[0] == Word.APPLIED

    async def end(self, pool: str, task_id: str, end: Callable[[T], T]) -> T | None:
        """End one before it is done; returns it as it is then, None for one that is not there. Raises Corrupt."""
        for _ in range(TRIES):
            seen = (await read_hash(self._client, self._places[0](pool))).get(task_id)
            if seen is None:
                return None
            task = self._read(task_id, seen)
            ended = task if task.done_ms else end(task)
            args = [task_id, seen, ended.to_json()]
            if replies.texts(await self._call("end_task", self._both(pool), args))[0] == Word.APPLIED:
                return ended
        raise StoreUnavailable(f"{task_id} moves on too fast to be ended")

    def _both(self, pool: str) -> list[str]:
        return [key(pool) for key in self._places]
