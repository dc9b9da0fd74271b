"""What every source of batches is, wherever it reads: a loop that nothing ends but a stop."""

import asyncio
import random
from abc import abstractmethod

from mode import Service

from contracts.agents.batch import InHand
from contracts.errors import Unavailable
from contracts.store.log import pause
from contracts.telemetry import Logger


class Reading(Service):
    """Calls `_read_once` again and again, after a failure with a pause; `_ended` says that it does so no more."""

    abstract = True

    def __init__(self, log: Logger) -> None:
        super().__init__()
        self._log = log
        self._in_hand = InHand()
        self._stop, self._ended = asyncio.Event(), asyncio.Event()

    async def on_start(self) -> None:
        """Begin, also again after a crash."""
        self._stop.clear()
        self._ended.clear()

    @abstractmethod
    async def _read_once(self) -> None:
        """Read what is next and hand it over. May raise anything; Unavailable where only time helps."""

    @Service.task
    async def _read_on(self) -> None:
        failures = 0
        try:
            while not self._stop.is_set():
                failures = await self._read_or_fail(failures)
        finally:
            self._ended.set()

    async def _read_or_fail(self, failures: int) -> int:
        try:
            await self._read_once()
            return 0
        except Unavailable as error:
            self._log.warning("reading_failed", reason=str(error))
        except Exception:
            self._log.exception("reading_failed")
        await pause(failures, self._stop, random.random())
        return failures + 1
