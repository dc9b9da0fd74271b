"""The log of a pool as it grows: tests wait for facts in it, never for time to pass."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from contracts.errors import StoreUnavailable
from contracts.job import TERMINAL, TRANSITIONS
from contracts.positions import entry_ms
from contracts.store import keys
from contracts.store.channel import Channel
from contracts.store.clients import command_client
from contracts.store.log import LogReader, Poison
from contracts.wire import Entry

BLOCK_MS = 1000
ENDS = frozenset(
    event for (before, event), after in TRANSITIONS.items() if after in TERMINAL and before not in TERMINAL
)
LIMIT_S = 40.0  # not how long a thing takes, but when to give up on a machine that is busy with other tests


class LogTail:
    """Reads everything that is appended after `open`; goes on where it was when the store comes back."""

    def __init__(self, url: str, pool: str = "default") -> None:
        self._url, self._key = url, keys.log(pool)
        self._by_subject: dict[str, list[Entry]] = defaultdict(list)
        self._changed = asyncio.Condition()
        self.entries: list[Entry] = []
        self.begin = "0-0"

    async def open(self, *, from_start: bool = False) -> None:
        """Begin at the end of the log, or at its start."""
        self._client = client = command_client(self._url)
        if not from_start and (last := await client.xrevrange(self._key, count=1)):
            self.begin = last[0][0].decode()
        self._channel = Channel(client.connection_pool)
        self._reader = LogReader(self._channel, self._key, self.begin)
        self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Stop reading."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.aclose()
        await self._client.aclose()

    def of(self, subject: str, *types: str) -> list[Entry]:
        """Return what was read about a job, worker or delivery, in order; of these types, or all."""
        return [entry for entry in self._by_subject[subject] if not types or entry.type in types]

    def has_ended(self, job_id: str) -> bool:
        """Whether the newest run of the job has its terminal event."""
        steps = self.of(job_id, "job.created", "job.retried", *ENDS)
        return bool(steps) and steps[-1].type in ENDS

    def ms_between(self, subject: str, first: str, last: str) -> int:
        """Return the log's time from the first event of one type to the last of another."""
        return entry_ms(self.of(subject, last)[-1].position) - entry_ms(self.of(subject, first)[0].position)

    async def wait_for(self, subject: str, *types: str, count: int = 1, limit_s: float = LIMIT_S) -> Entry:
        """Return the `count`-th entry of one of these types about the subject, as soon as it is there."""
        await self.wait_until(
            lambda: len(self.of(subject, *types)) >= count, f"{' or '.join(types)} #{count} of {subject}", limit_s
        )
        return self.of(subject, *types)[count - 1]

    async def wait_for_any(self, event_type: str, limit_s: float = LIMIT_S, **data: object) -> Entry:
        """Return the first entry of the type, whatever it is about, whose data has these values."""

        def found() -> list[Entry]:
            typed = (entry for entry in self.entries if entry.type == event_type)
            return [entry for entry in typed if data.items() <= entry.raw_data().items()]

        await self.wait_until(lambda: bool(found()), f"{event_type} {data}", limit_s)
        return found()[0]

    async def wait_until(self, condition: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> None:
        """Wait until the condition on what was read holds; it is looked at after each read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s), self._changed:
                await self._changed.wait_for(condition)
                return
        raise AssertionError(f"not within {limit_s:g} s: {what}; the log ends with\n{self.ending()}")

    def ending(self, count: int = 25) -> str:
        """The newest entries as text, for a failure's message."""
        lines = (f"{e.position} {e.type} {e.subject} n={e.sequence} f={e.fence} {e.data[:200]!r}" for e in self.entries)
        return "\n".join([*lines][-count:])

    async def _follow(self) -> None:
        while True:
            try:
                fresh = await self._reader.read(count=1000, block_ms=BLOCK_MS)
            except StoreUnavailable:
                await asyncio.sleep(0.05)  # the store is away: what we wait for will come with it
                continue
            if fresh:
                await self._take(fresh)

    async def _take(self, fresh: list[Entry | Poison]) -> None:
        async with self._changed:
            for entry in fresh:
                assert isinstance(entry, Entry), entry
                self.entries.append(entry)
                self._by_subject[entry.subject].append(entry)
            self._changed.notify_all()


async def eventually(
    check: Callable[[], Awaitable[Any]] | Callable[[], Any], what: str, limit_s: float = LIMIT_S
) -> Any:
    """Return what `check` returns once that is true; for facts that no log tells: processes, health, files."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    while True:
        found = check()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert loop.time() < end, f"not within {limit_s:g} s: {what}"
        await asyncio.sleep(0.02)
