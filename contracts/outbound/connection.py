"""The client's end of one connection: a request, its answer, and perhaps the next request.

Promises: sends each request once, whatever happens: nothing is ever repeated; reads ahead no further than
`AHEAD_BYTES`; whoever is sent something more than the answer loses the connection, so that it is never taken for the
answer to the next request. It has no clock: put one around all of it.
"""

from __future__ import annotations

import asyncio

from contracts.outbound.answer import AnswerReader, Head
from contracts.outbound.terms import HungUp, Malformed

AHEAD_BYTES = 512 << 10
REQUESTS_MAX = 200  # of one connection: then the name is looked up again, and the address judged


class Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self) -> None:
        self.requests = 0
        self._reader = AnswerReader()
        self._body = bytearray()
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The way is open."""
        self._transport = transport  # type: ignore[assignment]  # that of uvloop is no subclass

    def send(self, request: bytes) -> None:
        """Send the next request; the answer to the one before was taken."""
        self.requests += 1
        self._reader = AnswerReader()
        if self._transport is not None:
            self._transport.write(request)

    @property
    def may_be_kept(self) -> bool:
        """Whether another request may follow: the answer is whole and taken, and its sender says that he goes on."""
        return (
            self._transport is not None
            and not self._transport.is_closing()
            and self._error is None
            and self.requests < REQUESTS_MAX
            and self._reader.complete
            and not self._body
            # HTTP/1.1 means it without a word, but who says nothing may be about to hang up.
            and self._reader.head is not None
            and self._reader.head.headers.get("connection", "").lower() == "keep-alive"
        )

    def data_received(self, data: bytes) -> None:
        """Read on."""
        try:
            self._body += self._reader.feed(data)
        except Malformed as error:
            self._error = error
            self._abort()
        if self._reader.has_excess:
            self._abort()
        if len(self._body) > AHEAD_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """The other side has said all it will."""
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._end(exc)
        self._transport = None

    async def head(self) -> Head:
        """Wait for the head of the answer. Raises Malformed, OSError."""
        while self._reader.head is None:
            await self._more()
        return self._reader.head

    async def read(self, most: int) -> bytes:
        """Wait for some of the body; nothing at its end. Raises Malformed, OSError."""
        while not self._body and not self._reader.complete:
            await self._more()
        taken = bytes(self._body[:most])
        del self._body[:most]
        if self._is_paused and len(self._body) <= AHEAD_BYTES // 2 and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return taken

    def close(self) -> None:
        """Hang up: politely if all was said."""
        if self._transport is not None and self._reader.complete and not self._body:
            self._transport.close()
        else:
            self._abort()

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _end(self, error: Exception | None) -> None:
        if self._error is None:
            try:
                self._reader.end()
            except HungUp as hung_up:
                self._error = error or hung_up
        self._wake()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
