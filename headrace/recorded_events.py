"""Where `headrace policy simulate` takes its events from: a file of envelopes, or the log of a pool. Reads only."""

import asyncio
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import orjson

from contracts.errors import ConfigError
from contracts.positions import BadPosition, entry_key, parse_position
from contracts.settings import Settings
from contracts.store import keys
from contracts.store.channel import Channel
from contracts.store.clients import command_client
from contracts.store.log import LogReader, Poison
from contracts.times import ms_of
from contracts.wire import Entry
from headrace.output import note
from headrace.store_server import ensure, release
from services.scheduler.simulate.recorded import ALL, Bound

_AT_ONCE = 1000


class BadInput(ValueError):
    """What was given cannot be simulated; the text says what is wrong."""


def read_bound(text: str | None, *, first: bool) -> Bound:
    """Read an end of the range; both ends belong to it. Raises BadInput."""
    if text is None:
        return ALL[0 if first else 1]
    try:
        return entry_key(_entry(text))
    except ValueError:
        return _wall_ms(text), 0 if first else float("inf")


def _entry(text: str) -> str:
    """The stream id of a position, public or inside a pool. Raises BadPosition, ValueError."""
    position = text if "." not in text else parse_position(text).entry
    ms, dash, sequence = position.partition("-")
    if not (dash and ms.isdigit() and sequence.isdigit()):
        raise BadPosition(text)
    return position


def _wall_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{text!r} is neither RFC 3339 nor a position") from None
    if moment.tzinfo is None:
        raise BadInput(f"{text!r} has no time zone: end it with Z or +00:00")
    return ms_of(moment)


def from_file(path: Path) -> Iterator[tuple[Entry, str]]:
    """Yield the envelopes of a file, one a line, and where each stands. Raises BadInput."""
    for number, line in enumerate(bytes_of(path).splitlines(), 1):
        if line.strip():
            where = f"{path}, line {number}"
            yield _envelope(line, number, where), where


def _envelope(line: bytes, number: int, where: str) -> Entry:
    try:
        told = orjson.loads(line)
        position = _entry(told["position"]) if "position" in told else f"{_wall_ms(told['time'])}-{number}"
        data = orjson.dumps(told["data"])
        return Entry(position, str(told["type"]), str(told["subject"]), data, int(told.get("version", 1)))
    except KeyError as fault:
        raise BadInput(f"{where}: {fault.args[0]!r} is missing") from None
    except (ValueError, TypeError, AttributeError) as fault:
        raise BadInput(f"{where}: no event envelope ({fault})") from None


def from_log(settings: Settings, pool: str) -> Iterator[tuple[Entry, str]]:
    """Yield the pool's log and where each entry stands; an embedded store is started for as long as it is read."""
    url, home = settings.redis.url, settings.data_dir.expanduser()
    if not url and not home.exists():
        raise ConfigError([f"no store: {home} does not exist, and HEADRACE_REDIS__URL is not set"])
    try:
        found = asyncio.run(_read(url or ensure(home, server=settings.store.server).url, pool))
    finally:
        if not url:
            release(home)  # without a wait: another process may go on using it
    for entry in found:
        if isinstance(entry, Poison):
            note(f"left out: {entry.position} cannot be read ({entry.reason})")
        else:
            yield entry, entry.position


async def _read(url: str, pool: str) -> list[Entry | Poison]:
    client = command_client(url)
    channel = Channel(client.connection_pool)
    try:
        reader, found = LogReader(channel, keys.log(pool)), list[Entry | Poison]()
        while some := await reader.read(_AT_ONCE):
            found += some
        return found
    finally:
        await channel.aclose()
        await client.aclose()


def bytes_of(path: Path) -> bytes:
    """Read a file that was named. Raises BadInput."""
    try:
        return path.expanduser().read_bytes()
    except OSError as fault:
        raise BadInput(f"{path} cannot be read: {fault.strerror}") from None
