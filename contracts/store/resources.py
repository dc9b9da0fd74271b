"""External rate limits in {_sys}: tokens for all pools together, by the server's time."""

from dataclasses import dataclass

from contracts.store import keys, replies
from contracts.store.batcher import Batcher


@dataclass(frozen=True, slots=True)
class Grant:
    """So many tokens, to be used before `until_ms` of server time.

    `more_ms`: when it is worth asking again, 0 if all that was wanted was given.
    """

    n: int
    more_ms: int
    until_ms: int


class Resources:
    """Calls about external limits."""

    def __init__(self, batcher: Batcher) -> None:
        self._call = batcher.call

    async def grant(
        self, resource: str, rate: int, window_ms: int, wanted: int, hold_ms: int = 0, now_ms: int = 0
    ) -> Grant:  # fmt: skip
        """Ask for tokens that hold for `hold_ms`, or a little longer; a window begins where they end.

        A repeat after a lost reply may lose some; never more than the rate may be used in any window.
        """
        raw = await self._call("grant", [keys.resource(resource)], [now_ms, rate, window_ms, wanted, hold_ms])
        _, n, more_ms, until_ms = replies.texts(raw)
        return Grant(int(n), int(more_ms), int(until_ms))

    async def shut(self, resource: str, pause_ms: int, now_ms: int = 0) -> int:
        """Let nobody have tokens for `pause_ms`; returns until when, in server time."""
        return int(replies.texts(await self._call("shut", [keys.resource(resource)], [now_ms, pause_ms]))[1])
