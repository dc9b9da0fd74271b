"""What an agent is given: a read batch of a log, however it came here."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contracts.store.log import Poison
from contracts.wire import Entry


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Entries in the order of the log.

    Attributes:
        in_group: whether they are pending in the log's group, to be acknowledged in the call that stores.
        settle: called once when the agent is through with it: True when it was handled, False when it was not.
    """

    entries: Sequence[Entry | Poison]
    in_group: bool
    settle: Callable[[bool], None]


class InHand:
    """How many batches were handed over and are not settled yet."""

    def __init__(self) -> None:
        self._count = 0
        self._fewer = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """Whether all were settled."""
        return self._count == 0

    def add(self, count: int = 1) -> None:
        """Count more."""
        self._count += count

    def remove(self) -> None:
        """Count one less, and tell who waits."""
        self._count -= 1
        self._fewer.set()

    async def until(self, most: int) -> None:
        """Wait until there are at most so many."""
        while self._count > most:
            self._fewer.clear()
            await self._fewer.wait()
