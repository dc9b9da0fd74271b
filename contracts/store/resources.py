"""External rate limits in {_sys}: tokens for all pools together, by the server's time."""

from dataclasses import dataclass

from contracts.store import keys, replies
from contracts.store.batcher import Batcher


@dataclass(frozen=True, slots=True)
class Grant:
    """So many tokens; `more_ms`: when it is worth asking again, 0 if all that was wanted was given."""

    n: int
    more_ms: int


class Resources:
    """Calls about external limits."""

    def __init__(self, batcher: Batcher) -> None:
        self._call = batcher.call

    async def grant(self, resource: str, rate: int, window_ms: int, wanted: int, now_ms: int = 0) -> Grant:
        """Ask for tokens. A repeat after a lost reply may lose some; it never gives more than the rate."""
        raw = await self._call("grant", [keys.resource(resource)], [now_ms, rate, window_ms, wanted])
        _, n, more_ms = replies.texts(raw)
        return Grant(int(n), int(more_ms))

    async def shut(self, resource: str, pause_ms: int, now_ms: int = 0) -> int:
        """Let nobody have tokens for `pause_ms`; returns until when, in server time."""
        return int(replies.texts(await self._call("shut", [keys.resource(resource)], [now_ms, pause_ms]))[1])
