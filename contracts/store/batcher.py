"""One pipeline in flight: calls made while it is under way leave together in the next one.

That is group commit on the client's side: several times the rate of many connections, and one fsync on the server
serves the whole batch. A call that finds nothing under way leaves at once, by itself. Calls leave in the order they
were made. A call whose caller has gone away is not sent.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from contracts.errors import StoreUnavailable, Unconfirmed
from contracts.store import library
from contracts.store.channel import Channel, Command, NotSent
from contracts.store.clients import COMMAND_TIMEOUT_S, LOST, as_store_error, retry_schedule

# While the server works on one batch, this process works on the answers of the one before. Larger batches make the two
# wait for each other, and a call costs hardly less in them.
MAX_BATCH = 12
MAX_WAITING = 20_000


class _NotReady(ConnectionError):
    """The server refused some calls of a batch for the moment; `replies` has what became of each."""

    def __init__(self, replies: list[object]) -> None:
        super().__init__("the server is not ready")
        self.replies = replies


class Batcher:
    """Calls of the function library through one connection, batched."""

    def __init__(self, client: Redis, retries: int) -> None:
        self._client = client
        self._channel = Channel(client.connection_pool)
        self._retry = retry_schedule(retries)
        self._waiting: deque[tuple[Command, asyncio.Future[object]]] = deque()
        self._busy = False
        self._running: asyncio.Task[None] | None = None

    async def call(self, verb: str, keys: Sequence[str], args: Command) -> object:
        """Call a verb and return its raw reply. Raises StoreFull, StoreUnavailable; Unconfirmed when nobody knows."""
        command = ["FCALL", library.function_name(verb), len(keys), *keys, *args]
        if not self._busy:
            return await self._call_alone(command)
        if len(self._waiting) >= MAX_WAITING:
            raise StoreUnavailable("too many calls are waiting")
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, future))
        return await future

    async def close(self) -> None:
        """Wait for what is under way and close the connection."""
        if self._running is not None:
            await self._running
        await self._channel.aclose()

    async def _call_alone(self, command: Command) -> object:
        # In the caller's own task: nobody else is waiting, so handing the call over would only cost time.
        self._busy = True
        try:
            (reply,) = await self._execute([command])
        except Exception as error:
            raise _as_unanswered(error) from error
        finally:
            if self._waiting:
                self._running = asyncio.create_task(self._drain())
            else:
                self._busy = False
        if isinstance(reply, Exception):
            raise as_store_error(reply)
        return reply

    async def _drain(self) -> None:
        try:
            while self._waiting:
                size = min(MAX_BATCH, len(self._waiting))
                taken = [self._waiting.popleft() for _ in range(size)]
                batch = [(command, future) for command, future in taken if not future.done()]
                if batch:
                    await self._send(batch)
        finally:
            self._busy = False

    async def _send(self, batch: list[tuple[Command, asyncio.Future[object]]]) -> None:
        try:
            replies = await self._execute([command for command, _ in batch])
        except Exception as error:  # every caller must hear of it, whatever it was
            replies = [_as_unanswered(error)] * len(batch)
        for (_, future), reply in zip(batch, replies, strict=True):
            if future.done():
                continue
            if isinstance(reply, Exception):
                future.set_exception(as_store_error(reply))
            else:
                future.set_result(reply)

    async def _execute(self, commands: Sequence[Command]) -> list[object]:
        replies = await self._exchange(commands)
        missing = [i for i, reply in enumerate(replies) if _is_missing(reply)]
        if missing:  # first use, a fresh server, or a node that joined: load and repeat just those
            await load(self._client)
            for i, reply in zip(missing, await self._exchange([commands[i] for i in missing]), strict=True):
                replies[i] = reply
        return replies

    async def _exchange(self, commands: Sequence[Command]) -> list[object]:
        """Send a batch, again as a whole when a reply is lost or the server is not ready: each call is idempotent.

        When the server stays so, each call has its own reply: it may have been carried out before the others failed.
        """
        try:
            return await self._retry.call_with_retry(partial(self._once, commands), self._hang_up)
        except _NotReady as found:
            return found.replies

    async def _once(self, commands: Sequence[Command]) -> list[object]:
        replies = await self._channel.exchange(commands, COMMAND_TIMEOUT_S)
        if any(isinstance(reply, LOST) for reply in replies):
            raise _NotReady(replies)
        return replies

    async def _hang_up(self, _: Exception) -> None:
        await self._channel.aclose()  # another connection may lead to a server that is ready


async def load(client: Redis) -> None:
    """Load the library if this version is absent; never replaces anything."""
    try:
        await client.function_load(library.source())
    except ResponseError as error:
        if "already exists" not in str(error):
            raise


def _as_unanswered(error: Exception) -> Exception:
    found = as_store_error(error)
    is_unknown = isinstance(found, StoreUnavailable) and not isinstance(error, NotSent)
    return Unconfirmed(f"{type(error).__name__}: {error}") if is_unknown else found


def _is_missing(reply: object) -> bool:
    return isinstance(reply, ResponseError) and "unction not found" in str(reply)
