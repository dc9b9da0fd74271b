"""A CONNECT proxy on a free port of this host that notes every byte it was told before the tunnel stood."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class ConnectProxy:
    """Answers `answer`; with a 2xx it passes bytes to `leads_to`, whatever it was asked for."""

    answer: bytes
    leads_to: tuple[str, int]
    port: int = 0
    asked: list[str] = field(default_factory=list)
    passed: bytes = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            self.asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(self.answer)
            if self.answer[9:10] == b"2":
                far_reader, far_writer = await asyncio.open_connection(*self.leads_to)
                await asyncio.gather(self._pump(reader, far_writer, self._note), self._pump(far_reader, writer))
        writer.close()

    def _note(self, data: bytes) -> None:
        self.passed += data

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes], None] | None = None
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if note is not None:
                    note(data)
                writer.write(data)
        writer.close()


@asynccontextmanager
async def connect_proxy(
    leads_to: tuple[str, int], answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"
) -> AsyncIterator[ConnectProxy]:
    proxy = ConnectProxy(answer, leads_to)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
