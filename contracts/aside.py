"""A process beside a service that answers one question from archive and log, and can do nothing else.

    sys.exit(answer(work))      in the `__main__` of a package

Promises: it ends when its parent does, after its seconds of CPU, or above its memory; it opens no connection but to the
store (the archive's own client of an object store beside that), so what it computes reaches nobody but its parent.
"""

import asyncio
import ipaddress
import os
import resource
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import orjson

from contracts.archive import Archive, open_archive
from contracts.errors import HeadraceError
from contracts.secrecy import hide_this_process
from contracts.settings import Settings
from contracts.store import Store
from contracts.wire import Entry

JsonObject = dict[str, Any]
MOST_ENTRIES = 2_000_000  # of one pool's log
_AT_ONCE = 2_000
Work = Callable[[JsonObject, Archive], Awaitable[JsonObject]]


class CannotAnswer(Exception):
    """There is no answer, and will be none: `code` and text are told to whoever asked."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def answer(work: Work) -> int:
    """Read the question from standard input, write the answer to standard output; returns the exit status."""
    hide_this_process()
    asked = orjson.loads(sys.stdin.buffer.readline())
    settings = Settings.model_validate(asked["settings"])
    resource.setrlimit(resource.RLIMIT_DATA, (asked["memoryBytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (asked["cpuS"],) * 2)
    os.nice(asked["nice"])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.stdout.buffer.write(orjson.dumps(asyncio.run(_answered(work, settings, asked["question"]))))
    sys.stdout.buffer.flush()
    return 0


async def _answered(work: Work, settings: Settings, question: JsonObject) -> JsonObject:
    confine(settings.redis.url)
    store = Store(settings.redis.url)
    try:
        return {"result": await work(question, open_archive(store, settings))}
    except CannotAnswer as fault:
        return {"problem": {"code": fault.code, "detail": str(fault)}}
    except HeadraceError as fault:
        return {"problem": {"code": fault.code, "detail": str(fault)}}
    except MemoryError:
        return {"problem": {"code": "too_large", "detail": "it needs more memory than such a process may have"}}
    finally:
        await store.aclose()


def confine(url: str) -> None:
    """From now on refuse every connection of this process but those to the store at this URL."""
    allowed = addresses_of(url)

    def check(event: str, args: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto") and args[1] not in allowed and args[1][:2] not in allowed:
            raise PermissionError(f"this process may not reach {args[1]}")
        if event in ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.system"):
            raise PermissionError("this process may start no other")

    sys.addaudithook(check)


def addresses_of(url: str) -> set[Any]:
    """Return where a store's URL leads: paths of sockets, pairs of address and port.

    >>> addresses_of("unix:///run/hr.sock?db=1"), addresses_of("redis://127.0.0.1:7000/0")
    ({'/run/hr.sock'}, {('127.0.0.1', 7000)})
    """
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return {parts.path}
    host, port = parts.hostname or "localhost", parts.port or 6379
    try:
        return {(str(ipaddress.ip_address(host)), port)}
    except ValueError:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return {(address[0], port) for *_, address in found}


async def entries_of(archive: Archive, pool: str, until: str | None = None) -> AsyncIterator[Entry]:
    """Give what can be read of a pool's log, up to a place. Raises CannotAnswer past MOST_ENTRIES."""
    seen = 0
    async for batch in archive.entries(pool, None, until, _AT_ONCE):
        seen += len(batch)
        if seen > MOST_ENTRIES:
            raise CannotAnswer("too_large", f"it takes more than {MOST_ENTRIES} events of pool {pool}")
        for entry in batch:
            if isinstance(entry, Entry):
                yield entry


def _end_with_parent() -> None:
    # Ends when the other end is closed, however that came about. Past Python's own buffer, whose lock a thread that
    # still reads at the end of the process would hold.
    os.read(0, 1)
    os._exit(3)
