"""A proxy in front of a real server that carries out function calls and then loses their replies.

That is the failure a client cannot tell from a lost request: the connection is gone, the write may be in.
"""

import asyncio
import contextlib
import tempfile
from pathlib import Path


class LossyProxy:
    """Forwards one unix socket to another; `drop` is the number of replies to function calls still to be lost."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._folder = tempfile.TemporaryDirectory(prefix="hr-")
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()
        self.path = Path(self._folder.name) / "lossy.sock"
        self.url = f"unix://{self.path}"
        self.drop = 0
        self.dropped = 0

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        self._folder.cleanup()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(str(self._target))
        link = _Link()
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        upward = asyncio.create_task(self._up(reader, up_writer, link))
        try:
            await self._down(up_reader, writer, link)
        finally:
            upward.cancel()
            for stream in (writer, up_writer):
                with contextlib.suppress(OSError):
                    stream.close()
            self._pumps.discard(task)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: "_Link") -> None:
        while data := await reader.read(65536):
            # only the first bytes of a call name it, and a call may arrive in several pieces
            link.calls = link.calls or b"FCALL" in data
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: "_Link") -> None:
        while data := await reader.read(65536):
            if self.drop and link.calls:
                self.drop -= 1
                self.dropped += 1
                return
            link.calls = False
            writer.write(data)
            await writer.drain()


class _Link:
    """Whether the reply under way belongs to a function call."""

    calls = False
