"""A receiver that costs little: reads a POST, answers 200, and keeps count.

`python -m benchmarks.webhook_receiver` prints {"port": N} when it listens; GET answers what came since the last GET:
{"count", "first_s", "last_s"} by the wall clock.
"""

import asyncio
import json
import time
from typing import cast

import uvloop

_ANSWER = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"


class Counted:
    """What came since somebody asked."""

    count = 0
    first_s = 0.0
    last_s = 0.0

    def note(self) -> None:
        """Count one POST."""
        self.last_s = time.time()
        if not self.count:
            self.first_s = self.last_s
        self.count += 1

    def tell(self) -> bytes:
        """Return the figures, and begin anew."""
        body = json.dumps({"count": self.count, "first_s": self.first_s, "last_s": self.last_s}).encode()
        self.count = 0
        return b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class Connection(asyncio.Protocol):
    """Requests with a Content-Length, one after the other."""

    def __init__(self, counted: Counted) -> None:
        self._counted = counted
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where to answer."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer each request that is whole."""
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = self._read[:end].lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            if len(self._read) < end + 4 + length:
                return
            self._read = self._read[end + 4 + length :]
            if head.startswith(b"get"):
                self._transport.write(self._counted.tell())
                self._transport.close()
                return
            self._counted.note()
            self._transport.write(_ANSWER)


async def main() -> None:
    """Serve until the process is ended."""
    counted = Counted()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(counted), "127.0.0.1", 0, backlog=1000)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
