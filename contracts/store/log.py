"""Reading a log: by position (folds, tails) and as a member of a consumer group (the notifier, a worker's work).

Readers own a connection each, which may block, and a loop of their own: after any error they go on from their own
position, a group reader from its own pending entries, because a reply that was lost is in nobody's hands but its own.
An entry that cannot be read is returned as `Poison`, never dropped in silence.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from contracts.errors import Corrupt, StoreUnavailable
from contracts.positions import START
from contracts.store.channel import Channel, Command
from contracts.store.clients import COMMAND_TIMEOUT_S, LOST
from contracts.waiting import wait
from contracts.wire import Entry, decode


@dataclass(frozen=True, slots=True)
class Poison:
    """An entry that cannot be read, with the reason. `deleted` entries were trimmed while they were pending."""

    position: str
    reason: str
    deleted: bool = False


class Message(NamedTuple):
    """One raw message of a stream: position and fields, None when it was deleted before it was handled."""

    position: str
    fields: dict[bytes, bytes] | None

    def entry(self) -> Entry | Poison:
        """Read the message as an entry of a log."""
        if self.fields is None:
            return Poison(self.position, "trimmed before it was handled", deleted=True)
        return _read(self.position, self.fields)


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A message that its consumer left unhandled, and how many times it was handed out."""

    position: str
    tries: int


class StreamReader:
    """Reads one stream from a position on, as raw messages; any number of readers at once."""

    def __init__(self, channel: Channel, key: str, position: str = START) -> None:
        self._channel = channel
        self._key = key
        self.position = position

    @property
    def opened(self) -> int:
        """How many connections this took so far."""
        return self._channel.opened

    async def messages(self, count: int = 200, block_ms: int | None = None) -> list[Message]:
        """Return the next messages, waiting up to `block_ms` for the first. Raises StoreUnavailable."""
        command = ("XREAD", "COUNT", count, *_blocking(block_ms), "STREAMS", self._key, self.position)
        try:
            raw = await _ask(self._channel, command, block_ms)
        except (*LOST, ResponseError) as error:
            raise StoreUnavailable(str(error)) from error
        messages = [Message(position.decode(), fields) for position, fields in _of_one_stream(raw)]
        if messages:
            self.position = messages[-1].position
        return messages


class LogReader(StreamReader):
    """Reads a log from a position on; used for folds."""

    async def read(self, count: int = 200, block_ms: int | None = None) -> list[Entry | Poison]:
        """Return the next entries, waiting up to `block_ms` for the first. Raises StoreUnavailable."""
        return [message.entry() for message in await self.messages(count, block_ms)]


class GroupReader:
    """Reads one stream as a member of a group: first what it already owns, then what is new."""

    def __init__(
        self, channel: Channel, key: str, group: str, consumer: str, *, remake: Callable[[], Awaitable[object]]
    ) -> None:
        self._channel = channel
        self._key, self._group, self._consumer = key, group, consumer
        self._remake = remake  # makes the group again at its cursor, when the store lost it
        self._from = START

    @property
    def opened(self) -> int:
        """How many connections this took so far."""
        return self._channel.opened

    async def read(self, count: int = 64, block_ms: int | None = 1000) -> list[Message]:
        """Return the next messages; [] when none came in time. None does not wait.

        Raises StoreUnavailable after a lost connection.
        """
        member = ("GROUP", self._group, self._consumer)
        command = ("XREADGROUP", *member, "COUNT", count, *_blocking(block_ms), "STREAMS", self._key, self._from)
        try:
            raw = await _ask(self._channel, command, block_ms)
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise StoreUnavailable(str(error)) from error
            self.own_again()
            await self._remake()
            return []
        except LOST as error:
            self.own_again()
            raise StoreUnavailable(str(error)) from error
        messages = [Message(position.decode(), fields) for position, fields in _of_one_stream(raw)]
        if self._from == ">":
            return messages
        if not messages:  # nothing is left of what was read before: on to what is new
            self._from = ">"
            return await self.read(count, block_ms)
        self._from = messages[-1].position
        return messages

    @property
    def reads_own(self) -> bool:
        """Whether what this consumer already owns is read next; that counts as a try of each."""
        return self._from != ">"

    def own_again(self) -> None:
        """Begin again with what this consumer already owns: a reply may be lost."""
        self._from = START

    async def take_over(self, idle_ms: int, cursor: str = START, count: int = 100) -> tuple[str, list[Message]]:
        """Take messages that another consumer left unhandled for `idle_ms`; returns the cursor for the next call."""
        command = ("XAUTOCLAIM", self._key, self._group, self._consumer, idle_ms, cursor, "COUNT", count)
        raw = await self._command(command)
        taken = [Message(position.decode(), fields) for position, fields in _entries(raw[1]) if fields]
        trimmed = [Message(position.decode(), None) for position in raw[2]]  # out of the group by this call
        return raw[0].decode(), trimmed + taken

    async def abandoned(self, idle_ms: int, count: int = 100) -> list[Abandoned]:
        """Return the first messages that were left unhandled for `idle_ms`, without taking them."""
        raw = await self._command(("XPENDING", self._key, self._group, "IDLE", idle_ms, "-", "+", count))
        return [Abandoned(position.decode(), tries) for position, _, _, tries in raw]

    async def take_one(self, position: str, idle_ms: int, tries: int) -> list[Message]:
        """Take one message that was left for `idle_ms` and note its tries; [] if it is not there to be taken."""
        command = ("XCLAIM", self._key, self._group, self._consumer, idle_ms, position, "RETRYCOUNT", tries)
        return [Message(at.decode(), fields) for at, fields in _entries(await self._command(command))]

    async def keep(self, positions: Sequence[str]) -> None:
        """Say that messages are still being handled, so that nobody takes them over."""
        await self._command(("XCLAIM", self._key, self._group, self._consumer, 0, *positions, "JUSTID"))

    async def _command(self, command: Command) -> Any:
        try:
            return await _ask(self._channel, command)
        except (*LOST, ResponseError) as error:
            if str(error).startswith("NOGROUP"):
                await self._remake()
            raise StoreUnavailable(str(error)) from error


async def pause(failures: int, stop: asyncio.Event, chance: float) -> None:
    """Wait before going on after `failures` losses in a row: 0.05 s doubling to 1 s, or until `stop`."""
    delay_s = min(1.0, 0.05 * 2 ** min(failures, 10)) * (0.5 + chance)
    await wait(stop, delay_s)


def _read(position: str, fields: Any) -> Entry | Poison:
    try:
        return decode(position, fields)
    except Corrupt as error:
        return Poison(position, error.reason)


def _blocking(block_ms: int | None) -> tuple[str, int] | tuple[()]:
    return () if block_ms is None else ("BLOCK", block_ms)


async def _ask(channel: Channel, command: Command, block_ms: int | None = None) -> Any:
    # A read may block longer than a command may take; a lost one is noticed a command's time after that.
    (reply,) = await channel.exchange([command], COMMAND_TIMEOUT_S + (block_ms or 0) / 1000)
    if isinstance(reply, Exception):
        raise reply
    return reply


def _of_one_stream(raw: Any) -> list[tuple[bytes, dict[bytes, bytes] | None]]:
    """Unwrap the reply of XREAD and XREADGROUP, which is a mapping under RESP3 and a list under RESP2."""
    if not raw:
        return []
    return _entries(next(iter(raw.values())) if isinstance(raw, dict) else raw[0][1])


def _entries(raw: Any) -> list[tuple[bytes, dict[bytes, bytes] | None]]:
    """Read `[position, [field, value, ...]]`; a deleted entry has no fields."""
    return [(position, dict(zip(flat[::2], flat[1::2], strict=True)) if flat else None) for position, flat in raw]
