"""The receiver of `headrace demo`: keeps what was signed, refuses the rest.

Promises that `wait_for` returns only for a call whose signature the `standardwebhooks` package accepted.
"""

import asyncio

import orjson

from headrace.client import JsonObject
from headrace.webhooks.judging import Trust
from headrace.webhooks.receiver import Call, Receiver, Reply


class DemoReceiver(Receiver):
    """Believes the holder of one secret."""

    def __init__(self, secret: str) -> None:
        super().__init__(self._take)
        self.refused = 0
        self._calls: asyncio.Queue[JsonObject] = asyncio.Queue()
        self.believe(Trust(secret))

    async def wait_for(self, event_type: str, limit_s: float) -> str:
        """Return the type of the first signed call of this type. Raises TimeoutError."""
        async with asyncio.timeout(limit_s):
            while True:
                call = await self._calls.get()
                if call["type"] == event_type:
                    return event_type

    async def _take(self, call: Call) -> Reply:
        if call.fault is not None:
            self.refused += 1
            return Reply(400, b"bad signature")
        self._calls.put_nowait(orjson.loads(call.body))
        return Reply(204)
