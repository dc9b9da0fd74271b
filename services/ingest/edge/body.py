"""Request bodies within bounds of size, time and memory, however they are sent.

Promises: at most `max_bytes` of one body are ever held, counted on bytes that arrived and not on what was
declared; a body that is too slow ends with 408; all bodies being worked on together stay below `BodyRoom`'s
limit. Compressed bodies are refused, so there is nothing that could unpack to more. Does not read JSON.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

from aiohttp import web

from services.ingest.edge.problems import Problem


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bounds of one body. A slow sender gets `grace_s`, then must keep up `min_bytes_per_s` on average."""

    max_bytes: int = 1 << 20
    max_s: float = 30.0
    grace_s: float = 5.0
    min_bytes_per_s: int = 1_024


class BodyRoom:
    """Room for the bodies of all requests being worked on; full means 503, not swapping."""

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._max_bytes = max_bytes
        self.used_bytes = 0

    def share(self) -> "BodyShare":
        """Open one request's share; leaving it gives back what was taken."""
        return BodyShare(self)

    def take(self, count: int) -> None:
        """Reserve `count` bytes. Raises Problem `overloaded` when they do not fit."""
        if self.used_bytes + count > self._max_bytes:
            raise Problem("overloaded", "Too many large requests at once")
        self.used_bytes += count


class BodyShare:
    """What one request holds of the room; a context manager."""

    __slots__ = ("_room", "taken_bytes")

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self.taken_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._room.used_bytes -= self.taken_bytes

    def take(self, count: int) -> None:
        """Reserve `count` bytes more for this request."""
        self._room.take(count)
        self.taken_bytes += count


def check_head(request: web.BaseRequest, max_bytes: int) -> None:
    """Refuse by the head alone what will not be read. Raises Problem with status 413 or 415."""
    if request.headers.get("Content-Type") != "application/json":  # not written in the shortest way: parse it
        if request.content_type != "application/json":
            raise Problem("unsupported_media_type", "Content-Type must be application/json")
        if (request.charset or "utf-8").lower() not in ("utf-8", "utf8"):
            raise Problem("unsupported_media_type", "The charset must be UTF-8")
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise Problem("unsupported_media_type", "Compressed bodies are not accepted")
    check_size(request, max_bytes)


def check_size(request: web.BaseRequest, max_bytes: int) -> None:
    """Refuse a body by its declared length. Raises Problem `payload_too_large`."""
    if (request.content_length or 0) > max_bytes:
        raise _too_large(max_bytes)


async def read_body(request: web.BaseRequest, limits: BodyLimits, share: BodyShare) -> bytes:
    """Return the whole body. Raises Problem with status 400, 408, 413, 415 or 503."""
    check_head(request, limits.max_bytes)
    if request.content.is_eof() and request.content.exception() is None:
        return _take_all(request.content.read_nowait(-1), limits, share)
    parts: list[bytes] = []

    async def keep(part: bytes) -> None:
        share.take(len(part))
        parts.append(part)

    await receive(request, limits, keep)
    return b"".join(parts)


async def receive(request: web.BaseRequest, limits: BodyLimits, keep: Callable[[bytes], Awaitable[object]]) -> None:
    """Hand the body over part by part, whatever it is. Raises Problem with status 400, 408, 413."""
    check_size(request, limits.max_bytes)
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    received = 0
    try:
        async with asyncio.timeout_at(started_s + limits.grace_s) as deadline:
            while part := await request.content.readany():
                received += len(part)
                if received > limits.max_bytes:
                    raise _too_large(limits.max_bytes)
                await keep(part)
                deadline.reschedule(started_s + _allowed_s(received, limits))
    except TimeoutError:
        raise Problem("request_timeout", "The body did not arrive in time") from None
    except web.RequestPayloadError:
        raise Problem("bad_request", "The framing of the body is malformed") from None


def _take_all(body: bytes, limits: BodyLimits, share: BodyShare) -> bytes:
    if len(body) > limits.max_bytes:
        raise _too_large(limits.max_bytes)
    share.take(len(body))
    return body


def _allowed_s(received_bytes: int, limits: BodyLimits) -> float:
    """Time from the start by which the next bytes must be there.

    >>> _allowed_s(2_048, BodyLimits())
    7.0
    """
    return min(limits.max_s, limits.grace_s + received_bytes / limits.min_bytes_per_s)


def _too_large(max_bytes: int) -> Problem:
    return Problem("payload_too_large", f"The body may have {max_bytes} bytes at most")
