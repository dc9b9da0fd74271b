"""Connections that are kept for a moment: a receiver that is told often is not connected to each time.

Promises: a connection serves one receiver only, and one place; what is not used again within `idle_s` is closed; what
was closed or spoken on meanwhile is not used again.
Does not promise that a kept connection still stands when it is used: whoever sends learns that by an error, as on any.
"""

from __future__ import annotations

import asyncio

from contracts.outbound.connection import Connection
from contracts.webhook_target import Place

Key = tuple[str, bool, str, int]


class KeptConnections:
    """The idle connections of one process."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._idle: dict[Key, list[Connection]] = {}

    def take(self, receiver: str, place: Place) -> Connection | None:
        """Return an idle connection of the receiver to that place, if there is one that may be used."""
        idle = self._idle.get(_key(receiver, place))
        while idle:
            if (connection := idle.pop()).may_be_kept:
                return connection
        return None

    def keep(self, receiver: str, place: Place, connection: Connection) -> None:
        """Keep a connection for the next request."""
        key = _key(receiver, place)
        self._idle.setdefault(key, []).append(connection)
        asyncio.get_running_loop().call_later(self._idle_s, self._let_go, key, connection, connection.requests)

    def close(self) -> None:
        """Close all that are idle."""
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()

    def _let_go(self, key: Key, connection: Connection, requests: int) -> None:
        idle = self._idle.get(key, [])
        if connection in idle and connection.requests == requests:  # not used since
            idle.remove(connection)
            connection.close()
        if not idle:
            self._idle.pop(key, None)


def _key(receiver: str, place: Place) -> Key:
    return receiver, place.is_tls, place.host, place.port
