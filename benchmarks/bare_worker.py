"""Baseline of the way to author code: a blocked XREADGROUP, one frame to a child, one XADD when it is done.

The same libraries as the product (redis-py's asyncio client on uvloop), and nothing else: no fence, no state, no
scheduler, no acknowledgement. `python -m benchmarks.bare_worker <store URL> <slots>` prints {} when it listens and
then one line of stamps for each entry of the stream `bench:work`; field `ms` is how long the child takes. Each slot
reads ahead, so that between two entries there is one XADD and nothing else.
"""

import asyncio
import json
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import uvloop
from redis.asyncio import Redis
from redis.exceptions import ResponseError

WORK, DONE, GROUP = "bench:work", "bench:done", "bench"
BLOCK_MS = 1000
READ_AHEAD = 16
_HEADER = struct.Struct("!I")
_CHILD = Path(__file__).with_name("bare_child.py")


class Slot:
    """One child and the socket to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls) -> "Slot":
        """Start a child."""
        ours, theirs = socket.socketpair()
        command = (sys.executable, "-I", str(_CHILD), str(theirs.fileno()))
        await asyncio.create_subprocess_exec(*command, pass_fds=(theirs.fileno(),))
        theirs.close()
        return cls(*await asyncio.open_unix_connection(sock=ours))

    async def run(self, ms: int) -> bytes:
        """Send one frame and return the child's stamps."""
        frame = json.dumps({"ms": ms}).encode()
        self._writer.write(_HEADER.pack(len(frame)) + frame)
        (size,) = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
        return await self._reader.readexactly(size)


async def main(store_url: str, slots: int) -> None:
    """Work until the process is ended."""
    redis = Redis.from_url(store_url, socket_timeout=None)
    try:
        await redis.xgroup_create(WORK, GROUP, "$", mkstream=True)
    except ResponseError as error:  # an earlier round made it
        if "BUSYGROUP" not in str(error):
            raise
    children = [await Slot.open() for _ in range(slots)]
    for child in children:
        await child.run(0)
    print("{}", flush=True)
    await asyncio.gather(*(_serve(Redis.from_url(store_url, socket_timeout=None), child) for child in children))


async def _serve(redis: Redis, child: Slot) -> None:
    while True:
        read: Any = await redis.xreadgroup(GROUP, "bench", {WORK: ">"}, count=READ_AHEAD, block=BLOCK_MS)
        for _, fields in read[0][1] if read else ():
            stamps = await child.run(int(fields[b"ms"]))
            await redis.xadd(DONE, {"d": stamps})
            print(stamps.decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
