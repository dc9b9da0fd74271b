"""The connections of the redis client, with a way of sending that a cancel gets through.

redis-py sends inside `asyncio.wait_for`, which before Python 3.12 forgets a cancel that comes in the moment the sending
is done: the cancelled task lives on, and whoever waits for its end waits for ever. It also makes a task a command.
"""

import asyncio
from collections.abc import Iterable

from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError, TimeoutError


class _Cancellable(AbstractConnection):
    """Sends as redis-py does: in `socket_timeout` seconds, and a connection that failed at it is closed."""

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        """Raises TimeoutError or ConnectionError of redis-py."""
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        if check_health:
            await self.check_health()  # type: ignore[no-untyped-call]
        text = command.encode() if isinstance(command, str) else command
        try:
            async with asyncio.timeout(self.socket_timeout):
                await self._send_packed_command([text] if isinstance(text, bytes) else text)
        except BaseException as error:
            await self.disconnect(nowait=True)
            if isinstance(error, asyncio.TimeoutError):
                raise TimeoutError("Timeout writing to socket") from None
            if isinstance(error, OSError):
                raise ConnectionError(f"Error while writing to socket: {error}") from error
            raise


class _Tcp(_Cancellable, Connection):
    pass


class _Tls(_Cancellable, SSLConnection):
    pass


class _Unix(_Cancellable, UnixDomainSocketConnection):
    pass


_CLASSES: dict[type[AbstractConnection], type[AbstractConnection]] = {
    Connection: _Tcp,
    SSLConnection: _Tls,
    UnixDomainSocketConnection: _Unix,
}


def connection_class(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return our class for one of redis-py's, as its pool picked it by the address."""
    return _CLASSES[kind]
