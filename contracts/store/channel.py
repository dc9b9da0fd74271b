"""One connection to the server without a client's machinery per call: commands go out, their replies come back.

redis-py opens it (address, TLS, password, protocol); from then on hiredis packs and parses. Through redis-py's own
path a call costs this process several times as much, and it would be most of what a job costs.
Promises: a reply belongs to the command it is returned for. After an error, a time-out or a cancelled exchange the
connection is closed and the next exchange opens another, so a late reply can never be taken for that of a later
command. Does not retry and does not know what it carries.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import hiredis
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from contracts.store.clients import LOST

Command: TypeAlias = Sequence[Any]  # texts, bytes, numbers

_MORE = object()
_ERRORS: dict[str, type[Exception]] = {
    "CLUSTERDOWN": ClusterDownError,
    "LOADING": BusyLoadingError,
    "MASTERDOWN": MasterDownError,
    "OOM": OutOfMemoryError,
    "READONLY": ReadOnlyError,
    "TRYAGAIN": TryAgainError,
}


class NotSent(ConnectionError):
    """There is no way to the server; nothing of the exchange was carried out."""


class Channel:
    """Opened when it is first used. Exchanges take turns; close with `aclose`."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._turn = asyncio.Lock()
        self._wire: _Wire | None = None
        self.opened = 0  # times; who reads on by a position has come back to a server, and asks whether it is the same

    async def exchange(self, commands: Sequence[Command], limit_s: float) -> list[object]:
        """Send commands and return a reply for each, an error as an exception in its place.

        Raises NotSent when none was carried out, ConnectionError or TimeoutError of redis-py when nobody knows which.
        """
        async with self._turn:
            try:
                if self._wire is None or self._wire.is_lost:
                    await self._close()
                    self._wire = await _open_or_not_sent(self._pool)
                    self.opened += 1
                return await self._wire.ask(commands, limit_s)
            except BaseException:
                await self._close()
                raise

    async def aclose(self) -> None:
        """Wait for the exchange under way and close the connection."""
        async with self._turn:
            await self._close()

    async def _close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()


async def _open_or_not_sent(pool: ConnectionPool) -> "_Wire":
    try:
        return await _open(pool)
    except LOST as error:
        raise NotSent(f"{type(error).__name__}: {error}") from error


async def _open(pool: ConnectionPool) -> "_Wire":
    link: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]
    await link.connect_check_health(check_health=False, retry_socket_connect=False)
    wire = _Wire(link)
    if wire.is_lost:  # before it was ours: nobody would tell us
        await wire.close()
        raise ConnectionError("the connection was closed at once")
    return wire


class _Wire(asyncio.Protocol):
    """An open connection, taken over from redis-py; one exchange at a time."""

    def __init__(self, link: AbstractConnection) -> None:
        assert link._writer is not None
        self._link = link
        self._transport = cast(asyncio.Transport, link._writer.transport)
        self._parser = hiredis.Reader(notEnoughData=_MORE, replyError=_as_error)
        self._replies: list[object] = []
        self._wanted = 0
        self._answered: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._due_s = 0.0  # loop time at which the exchange under way is given up
        self._timer: asyncio.TimerHandle | None = None  # set before `_due_s`, and seldom: a timer a call costs too much
        self._transport.set_protocol(self)

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport.is_closing()

    async def ask(self, commands: Sequence[Command], limit_s: float) -> list[object]:
        """Carry out one exchange; after any exception the wire must be closed."""
        self._replies, self._wanted = [], len(commands)
        self._answered = self._loop.create_future()
        self._set_timer(self._loop.time() + limit_s)
        try:
            self._transport.write(b"".join([hiredis.pack_command(tuple(command)) for command in commands]))
            await self._answered
            replies, self._replies = self._replies, []
            return replies
        finally:
            self._answered, self._wanted = None, 0

    async def close(self) -> None:
        """Close at once: what was not sent yet must not be sent."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport.abort()
        await self._link.disconnect(nowait=True)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived; replies to nobody end the connection."""
        try:
            self._parser.feed(data)
            while (reply := self._parser.gets()) is not _MORE:
                if not isinstance(reply, hiredis.PushNotification):
                    self._replies.append(reply)
        except hiredis.ProtocolError as error:
            self._fail(ConnectionError(f"the server does not speak our protocol: {error}"))
            return
        if len(self._replies) > self._wanted:
            self._fail(ConnectionError("the server sent a reply that nobody asked for"))
        elif self._answered is not None and len(self._replies) == self._wanted and not self._answered.done():
            self._answered.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell who waits."""
        self._fail(ConnectionError(f"the connection was lost: {error or 'closed by the server'}"))

    def _set_timer(self, due_s: float) -> None:
        if self._timer is not None and due_s < self._due_s:
            self._timer.cancel()
            self._timer = None
        self._due_s = due_s
        if self._timer is None:
            self._timer = self._loop.call_at(due_s, self._look)

    def _look(self) -> None:
        """Give up what is overdue; what began after the timer was set has time left."""
        self._timer = None
        if self._answered is None:
            return
        if self._loop.time() < self._due_s:
            self._timer = self._loop.call_at(self._due_s, self._look)
        else:
            self._fail(TimeoutError("no reply in time"))

    def _fail(self, error: Exception) -> None:
        self._transport.abort()
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)


def _as_error(text: str) -> Exception:
    return _ERRORS.get(text.partition(" ")[0], ResponseError)(text)
