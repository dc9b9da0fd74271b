"""Many commands in one write, their answers in one go: what a batch needs of a connection, and no more.

Promises: answers come in the order of the commands, an error among them takes its place; the whole exchange has one
time-out; retries are those of the client. The general pipeline of redis-py does the same with a timer for each answer
and commands packed in Python, which costs several times as much as the rest of a call.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import hiredis
from redis.asyncio import Connection, Redis
from redis.exceptions import ResponseError, TimeoutError

EXCHANGE_TIMEOUT_S = 5.0


class Channel:
    """Borrows a connection of the client for each exchange."""

    def __init__(self, client: Redis) -> None:
        self._pool = client.connection_pool

    async def exchange(self, commands: Sequence[Sequence[Any]]) -> list[object]:
        """Send the commands and return their answers; raises the client's errors when the connection fails."""
        packed = [hiredis.pack_command(tuple(command)) for command in commands]
        connection: Connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            return await connection.retry.call_with_retry(
                lambda: _once(connection, packed), lambda _: connection.disconnect()
            )
        finally:
            await self._pool.release(connection)


async def _once(connection: Connection, packed: list[bytes]) -> list[object]:
    try:
        async with asyncio.timeout(EXCHANGE_TIMEOUT_S):
            await connection.send_packed_command(packed, check_health=False)
            return [await _answer(connection) for _ in packed]
    except BaseException as error:
        # Answers that were not read would be taken for those of the next exchange.
        await connection.disconnect(nowait=True)
        if type(error) is asyncio.TimeoutError:
            raise TimeoutError("no answer in time") from None
        raise


async def _answer(connection: Connection) -> object:
    try:
        return await connection.read_response(timeout=math.inf)
    except ResponseError as error:
        return error
