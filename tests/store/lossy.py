"""A proxy in front of a real server that carries out function calls and then loses their replies.

That is the failure a client cannot tell from a lost request: the connection is gone, the write may be in.
"""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path


class LossyProxy:
    """Forwards one unix socket to another; `drop` counts the replies to function calls that are still to be lost.

    `loses` may be replaced by a rule of its own, asked for each such reply.
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._folder = tempfile.TemporaryDirectory(prefix="hr-")
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self.path = Path(self._folder.name) / "lossy.sock"
        self.url = f"unix://{self.path}"
        self.drop = 0
        self.loses: Callable[[], bool] = lambda: self.drop > 0
        self.dropped = 0

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        while self._links:
            link = self._links.pop()
            link.cut()
            await link.ended.wait()
        self._folder.cleanup()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(str(self._target))
        link = _Link(writer, up_writer)
        self._links.add(link)
        try:
            await asyncio.gather(self._up(reader, link), self._down(up_reader, link), return_exceptions=True)
        finally:
            self._links.discard(link)
            link.ended.set()

    async def _up(self, reader: asyncio.StreamReader, link: "_Link") -> None:
        while data := await reader.read(65536):
            # only the first bytes of a call name it, and a call may arrive in several pieces
            link.calls = link.calls or b"FCALL" in data
            link.server.write(data)
            await link.server.drain()
        link.cut()

    async def _down(self, reader: asyncio.StreamReader, link: "_Link") -> None:
        while data := await reader.read(65536):
            if link.calls and self.loses():
                self.drop = max(0, self.drop - 1)
                self.dropped += 1
                break
            link.calls = False
            link.client.write(data)
            await link.client.drain()
        link.cut()


class _Link:
    """One connection through the proxy; `calls` says whether the reply under way belongs to a function call."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        self.calls = False
        self.ended = asyncio.Event()

    def cut(self) -> None:
        for stream in (self.client, self.server):
            stream.transport.abort()
