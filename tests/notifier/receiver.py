"""A scripted webhook receiver on a raw socket: it can misbehave in ways no HTTP server would.

A behaviour is called once per request, after the whole request was read (or, with `before_reading`, at once).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Received:
    """One request as it arrived; header names are in lower case."""

    request_line: str
    headers: dict[str, str]
    body: bytes
    at_s: float


@dataclass
class Receiver:
    """Listens on a free port of 127.0.0.1; plays `script` from the front, its last behaviour for ever."""

    script: list[Behaviour]
    tls: ssl.SSLContext | None = None
    keeps: bool = False  # connections, and says so
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    open_connections: int = 0
    busiest: int = 0
    port: int = 0

    async def __aenter__(self) -> Receiver:
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{path}"

    async def wait_for(self, condition: Callable[[], bool], timeout_s: float = 30) -> None:
        """Wait until the condition holds; it is looked at after each arrival and each close."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(condition)

    async def wait_for_requests(self, count: int, timeout_s: float = 30) -> list[Received]:
        await self.wait_for(lambda: len(self.requests) >= count, timeout_s)
        return self.requests

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open_connections += 1
        self.busiest = max(self.busiest, self.open_connections)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._play(reader, writer):
                    pass
        finally:
            writer.close()
            self.open_connections -= 1
            self._tasks.discard(task)
            await self._tell()

    async def _play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        behaviour = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if not getattr(behaviour, "before_reading", False):
            self.requests.append(await read_request(reader))
            await self._tell()
        await behaviour(reader, writer)
        return self.keeps and not getattr(behaviour, "hangs_up", False)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def read_request(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.split(":", 1) for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(head[0], headers, body, asyncio.get_running_loop().time())


def answer(status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> Behaviour:
    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} Scripted", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()

    return behave


def after(event: asyncio.Event, behaviour: Behaviour) -> Behaviour:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await event.wait()
        await behaviour(reader, writer)

    return behave


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Say nothing until the peer goes."""
    await reader.read()


async def close_without_answer(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    """Take the request, then hang up."""


close_without_answer.hangs_up = True  # type: ignore[attr-defined]


async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send RST instead of FIN."""
    handle: socket.socket = writer.get_extra_info("socket")
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


reset.before_reading = True  # type: ignore[attr-defined]


async def headers_then_stop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 500 Scripted\r\nContent-Length: 100\r\n\r\n")
    await reader.read()


async def half_status_line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 20")
    await reader.read()


async def dripping_body(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 500 Scripted\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.1)


async def dripping_headers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 Scripted\r\nX-Long: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.1)


async def endless_headers(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 Scripted\r\n")
    while True:
        writer.write(b"X-Filler: and on and on\r\n" * 100)
        await writer.drain()


async def endless_body(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 500 Scripted\r\nContent-Length: 10000000000\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def not_http(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example ESMTP\r\n")
    await writer.drain()


async def continue_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    await reader.read()
