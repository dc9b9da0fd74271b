"""What running attempts print, while they run. Lossy by design: the whole log is among the stored files afterwards.

One stream for each pool, capped, gone by itself when nobody prints: a piece is an attempt, its place in that attempt's
log, and bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from redis.asyncio import Redis

from contracts.store import keys
from contracts.store.batcher import Batcher
from contracts.store.channel import Channel
from contracts.store.clients import ask
from contracts.store.log import Message, StreamReader

MOST_PIECES = 512
PIECE_BYTES = 16 << 10
KEPT_S = 3_600
ERASED = -2  # in the place of an offset: the job was erased, whoever kept pieces of it drops them
STORED = -1  # in the place of an offset: the log of this attempt is a stored file now


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of one attempt's log, from `offset` on."""

    job_id: str
    fence: int
    offset: int
    data: bytes


class Live:
    """Both sides of the stream."""

    def __init__(self, batcher: Batcher, client: Redis, channel: Callable[[], Channel]) -> None:
        self._call, self._client, self._channel = batcher.call, client, channel

    async def publish(self, pool: str, piece: Piece) -> None:
        """Show a piece. Raises StoreUnavailable."""
        args = [MOST_PIECES, KEPT_S, piece.job_id, piece.fence, piece.offset, piece.data]
        await self._call("live", [keys.live(pool)], args)

    async def recent(self, pool: str, job_id: str) -> list[Piece]:
        """Return what is still there of a job, oldest first. Raises StoreUnavailable."""
        raw = await ask(self._client.xrange(keys.live(pool)))
        pieces = [_piece(fields) for _, fields in raw]
        return [piece for piece in pieces if piece.job_id == job_id and piece.offset != ERASED]

    def tail(self, pool: str, position: str) -> StreamReader:
        """Return a reader of what comes after a position (`$`: from now on), with a connection of its own."""
        return StreamReader(self._channel(), keys.live(pool), position)


def whole_characters(data: bytes) -> bytes:
    """Return `data` without the beginning of a character (UTF-8) at its end; all of it if nothing else is there.

    >>> whole_characters("aä".encode()[:2]), whole_characters(b"ab"), whole_characters(bytes([0xE2]))
    (b'a', b'ab', b'\\xe2')
    """
    for back in range(1, min(4, len(data))):
        if data[-back] >= 0xC0:
            wanted = 2 if data[-back] < 0xE0 else 3 if data[-back] < 0xF0 else 4
            return data[:-back] if back < wanted else data
        if data[-back] < 0x80:
            break
    return data


def as_piece(message: Message) -> Piece:
    """Read an entry of the stream."""
    return _piece(message.fields or {})


def _piece(fields: dict[bytes, bytes]) -> Piece:
    texts = {name if isinstance(name, bytes) else str(name).encode(): value for name, value in fields.items()}
    return Piece(texts[b"j"].decode(), int(texts[b"f"]), int(texts[b"o"]), texts[b"b"])
