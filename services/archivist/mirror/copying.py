"""The agent's body for one pool: entries become records, and stay in hand until the broker has acknowledged them.

Promises: raises nothing; a batch that cannot be written is tried again, with pauses, until it is or until told to give
it back; an entry that can be no record, or that no broker would take, is set aside and stands before nothing.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

import orjson

from contracts.agents.batch import Batch
from contracts.archive import Archive
from contracts.archive.stories import PoolJobs, origins_of
from contracts.envelope import JsonObject, Origin
from contracts.errors import Corrupt, Unavailable
from contracts.kafka.writer import Outgoing, TopicWriter
from contracts.store import Store
from contracts.store.log import Poison, pause
from contracts.store.store import PoolMeta
from contracts.telemetry import Logger
from contracts.wire import Entry

Entries = Sequence[Entry | Poison]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch: the last position in each partition, how many records, and what was set aside."""

    sent: Mapping[int, str]
    count: int
    poison: Sequence[Poison]


class Copier:
    """One pool. `epoch` is told by whoever reads; `outcome` is of the last batch, None when it was given back."""

    def __init__(
        self, store: Store, archive: Archive, pool: PoolMeta, public_url: str, writer: TopicWriter, log: Logger
    ) -> None:  # fmt: skip
        self._store, self._archive, self._pool, self._public_url = store, archive, pool, public_url
        self.writer = writer
        self.forget()
        self._log = log.bind(pool=pool.name)
        self._ending = asyncio.Event()
        self.epoch = pool.epoch
        self.outcome: Outcome | None = None
        self.reason = ""  # why nothing is copied at the moment
        self.failures = 0  # since they were last told

    async def run(self, batches: AsyncIterator[Batch]) -> None:
        """Copy batch after batch."""
        async for batch in batches:
            await self.copy_all(batch.entries)

    def forget(self) -> None:
        """Rely on nothing that was read of jobs before."""
        self._jobs = PoolJobs(self._store, self._archive, self._pool.name)

    def give_back(self, *, now: bool = True) -> None:
        """Try no longer; `now` False takes that back."""
        (self._ending.set if now else self._ending.clear)()

    async def copy_all(self, entries: Entries) -> None:
        """Copy a batch, however long the broker is away."""
        self.outcome, records, failures = None, None, 0
        while not self._ending.is_set():
            try:
                if records is None:
                    records = await self._records(entries)
                self.outcome = await self._write(*records)
                self.reason = ""
                return
            except asyncio.CancelledError as error:
                if _is_cancelled():
                    raise
                self._note(error)
            except Exception as error:  # one that nobody foresaw must not end the agent either
                self._note(error)
            await pause(failures, self._ending, random.random())
            failures += 1

    async def _write(self, records: Sequence[Outgoing], poison: Sequence[Poison]) -> Outcome:
        written = await self.writer.write(records)
        refused = [Poison(record.position, f"the topic does not take it: {why}") for record, why in written.refused]
        for entry in (*poison, *refused):
            self._log.error("entry_set_aside", position=entry.position, reason=entry.reason)
        return Outcome(written.last, written.count, [*poison, *refused])

    async def _records(self, entries: Entries) -> tuple[list[Outgoing], list[Poison]]:
        """Return what is written of a batch, and what cannot be. Raises Unavailable."""
        poison = [entry for entry in entries if isinstance(entry, Poison)]
        readable = [entry for entry in entries if isinstance(entry, Entry)]
        try:
            return await self._outgoing(readable), poison
        except Unavailable:
            raise
        except Exception:  # one of them: which one?
            self._log.warning("batch_told_one_by_one", entries_count=len(readable))
        records = []
        for entry in readable:
            try:
                records += await self._outgoing([entry])
            except Unavailable:
                raise
            except Exception as error:
                reason = error.reason if isinstance(error, Corrupt) else f"cannot be told: {type(error).__name__}"
                poison.append(Poison(entry.position, reason))
        return records, poison

    async def _outgoing(self, entries: Sequence[Entry]) -> list[Outgoing]:
        origin = Origin(self._pool.code, self.epoch, self._public_url)
        origins = await origins_of(self._archive, self._pool.name, origin, [entry.position for entry in entries])
        owners = await self._jobs.owners(entries, entries, with_users=False)
        views = await self._jobs.views(entries, owners, origins)
        return [record_of(entry, view) for entry, view in zip(entries, views, strict=True)]

    def _note(self, error: BaseException) -> None:
        self.reason = str(error) or type(error).__name__
        self.failures += 1
        if isinstance(error, Unavailable):
            self._log.warning("copying_failed", reason=self.reason)
        else:
            self._log.exception("copying_failed")


def record_of(entry: Entry, view: JsonObject) -> Outgoing:
    """Return the record of an event: keyed by what it is about, so that one partition has all of a job."""
    headers = (("position", str(view["position"]).encode()), ("hooked", b"1" if entry.hooked else b"0"))
    return Outgoing(entry.position, entry.subject.encode(), orjson.dumps(view), headers)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
