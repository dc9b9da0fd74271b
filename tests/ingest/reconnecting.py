"""Clients that drop the line at random, and what they were told, to be counted against the log.

A client stands where its last message said it stands, and knows for each gap what lies in it: from where it stood to
the place of the snapshot that followed.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from contracts.positions import entry_key, parse_position

IDLE_S = 0.15
AGAIN_S = 0.02
FINISH_S = 30
Key = tuple[int, int]


@dataclass
class Told:
    """What a client was told: keys of events in their order, and the gaps that it was told of."""

    begun: Key | None = None
    events: list[Key] = field(default_factory=list)
    gaps: list[tuple[Key, Key]] = field(default_factory=list)
    place: str = ""
    connections: int = 0
    _in_gap: bool = False

    def take(self, kind: str, place: str, position: str = "") -> None:
        """Take one message; `position` is that of an event."""
        if kind == "gap":
            self._in_gap = True
        elif kind == "snapshot":
            if self.begun is None:
                self.begun = _key(place)
            elif self._in_gap:
                self.gaps.append((_key(self.place), _key(place)))
                self._in_gap = False
        elif kind == "event":
            self.events.append(_key(position))
        self.place = place or self.place

    def faults(self, log: list[Key]) -> list[str]:
        """Say what is wrong with it, given the keys of all events that were for this client."""
        assert self.begun is not None
        begun, excused = self.begun, self.gaps
        due = [key for key in log if key > begun and not any(low < key <= high for low, high in excused)]
        seen = set(self.events)
        faults = [f"not told: {key}" for key in due if key not in seen]
        faults += [f"foreign: {key}" for key in self.events if key not in set(log)]
        faults += [] if self.events == sorted(seen) else ["twice, or out of order"]
        return faults


class Client:
    """Comes back `most` times; `chance` decides where and for how long."""

    def __init__(self, urls: Callable[[], list[str]], key: str, most: int, seed: int) -> None:
        self._urls, self._key, self.most, self._chance = urls, key, most, random.Random(seed)
        self.of: dict[str, Told] = {}  # by what was followed
        self._path = "tenant"

    @property
    def connections(self) -> int:
        return sum(told.connections for told in self.of.values())

    async def run(self, session: aiohttp.ClientSession, stop: asyncio.Event, last: Callable[[str], Key]) -> None:
        """Follow until it came back often enough and `stop` is set; then up to the `last` event of what it follows."""
        while self.connections < self.most or not stop.is_set():
            await self._connect(session, self._chance.randrange(1, 30))
        async with asyncio.timeout(FINISH_S):
            while not (told := self.of.get(self._path)) or not told.place or _key(told.place) < last(self._path):
                await self._connect(session, 1 << 30)

    async def _connect(self, session: aiohttp.ClientSession, most: int) -> None:
        url = self._chance.choice(self._urls())
        try:
            async with asyncio.timeout(20):
                await self._follow(session, url, most)
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            await asyncio.sleep(AGAIN_S)

    async def _follow(self, session: aiohttp.ClientSession, url: str, most: int) -> None:
        raise NotImplementedError

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"}


class SseClient(Client):
    """Server-sent events; `next_path` names what is followed next, once this has ended."""

    def __init__(
        self, urls: Callable[[], list[str]], key: str, most: int, seed: int, next_path: Callable[[], str]
    ) -> None:  # fmt: skip
        super().__init__(urls, key, most, seed)
        self._next_path, self._path = next_path, next_path()

    async def _follow(self, session: aiohttp.ClientSession, url: str, most: int) -> None:
        told = self.of.setdefault(self._path, Told())
        headers = self._headers() | ({"Last-Event-ID": told.place} if told.place else {})
        async with session.get(url + self._path, headers=headers) as response:
            if response.status == 204:
                self._path = self._next_path()
                return
            if response.status != 200:
                await asyncio.sleep(AGAIN_S)
                return
            told.connections += 1
            async for kind, place, data in _messages(response):
                if kind == "end":
                    if data["reason"] == "terminal":
                        self._path = self._next_path()
                    return
                told.take(kind if kind in ("snapshot", "gap", "preview") else "event", place, data.get("position", ""))
                most -= 1
                if most <= 0:
                    response.close()  # in the middle of whatever comes
                    return


class SocketClient(Client):
    """The tenant's channel of a WebSocket."""

    async def _follow(self, session: aiohttp.ClientSession, url: str, most: int) -> None:
        told = self.of.setdefault(self._path, Told())
        async with session.ws_connect(f"{url}/v1/ws", headers=self._headers()) as ws:
            asked = {"op": "subscribe", "channel": "tenant", "previews": "none"}
            await ws.send_str(orjson.dumps(asked | ({"after": told.place} if told.place else {})).decode())
            told.connections += 1
            while most > 0:
                frame = await _frame(ws)
                if frame is None or frame["op"] in ("end", "error"):
                    break
                kind = "snapshot" if frame["op"] == "subscribed" and frame["snapshot"] is not None else frame["op"]
                if kind != "subscribed":
                    told.take(kind, frame.get("position") or "", frame.get("event", {}).get("position", ""))
                most -= 1
            if ws._response.connection is not None:
                ws._response.close()  # no farewell


async def _frame(ws: aiohttp.ClientWebSocketResponse) -> dict[str, Any] | None:
    try:
        message = await ws.receive(timeout=IDLE_S)
    except TimeoutError:
        return None
    return dict(orjson.loads(message.data)) if message.type is aiohttp.WSMsgType.TEXT else None


async def _messages(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str, dict[str, Any]]]:
    """Yield event, id and data of each message, until nothing comes for a moment."""
    fields: dict[str, str] = {}
    while True:
        try:
            async with asyncio.timeout(IDLE_S):
                raw = await response.content.readline()
        except TimeoutError:
            return
        if not raw:
            return
        name, _, value = raw.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "data" in fields:
            yield fields["event"], fields.get("id", ""), orjson.loads(fields["data"])
            fields = {}


def _key(place: str) -> Key:
    """Return the place in the first pool, in which all of this happens; epochs go on where the one before ended."""
    return entry_key(parse_position(place.partition(",")[0]).entry)


def progress(clients: Sequence[Client]) -> float:
    """Return how much of the coming back is done; not all of it before somebody was told of a gap."""
    share = min(client.connections / client.most for client in clients)
    return share if any(told.gaps for client in clients for told in client.of.values()) else min(share, 0.99)
