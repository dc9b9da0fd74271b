"""Exports as they arrive: every line once, also over connections that break off. Checks what the last line says."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlencode

import orjson

from contracts.exports import END
from headrace.client import Client, JsonObject, Unreachable

PATH = "/v1/events/export"
TRIES = 6
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0


class NotWhole(Exception):
    """What came is not what was sent."""


class Exported:
    """Events as lines; afterwards `count`, `sha256` and `cursor` tell of all of them."""

    def __init__(self, client: Client, params: Sequence[tuple[str, str]]) -> None:
        self._client, self._params = client, list(params)
        self._digest = hashlib.sha256()
        self._last: dict[str, str] = {}  # by pool
        self.count, self.cursor = 0, ""

    @property
    def sha256(self) -> str:
        """Of all lines."""
        return self._digest.hexdigest()

    @property
    def end(self) -> JsonObject:
        """The last line of the whole."""
        return {"type": END, "count": self.count, "sha256": self.sha256, "nextCursor": self.cursor}

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of events. Raises Problem, Unreachable, NotWhole."""
        failures = 0
        while not self.cursor:
            try:
                async for line in self._once():
                    failures = 0
                    yield line
            except Unreachable:
                failures += 1
                if failures >= TRIES:
                    raise
                await asyncio.sleep(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**failures))

    async def _once(self) -> AsyncIterator[bytes]:
        part, count = hashlib.sha256(), 0
        params = self._params
        if self._last:  # goes on where the connection broke off
            params = [each for each in params if each[0] not in ("after", "cursor")]
            params = [*params, ("after", ",".join(self._last.values()))]
        async for text in self._client.lines(f"{PATH}?{urlencode(params)}", {}):
            line = text.encode() + b"\n"
            event = orjson.loads(line)
            if event["type"] == END:
                if (event["count"], event["sha256"]) != (count, part.hexdigest()):
                    raise NotWhole("the lines are not those that the server counted")
                self.cursor = event["nextCursor"]
                return
            self._last[event["position"].partition(".")[0]] = event["position"]
            for digest in (part, self._digest):
                digest.update(line)
            count += 1
            self.count += 1
            yield line
        raise Unreachable("the export broke off")
