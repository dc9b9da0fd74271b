"""Baseline of the live streams: one XREAD loop that writes each entry to the socket of its job.

No keys, no snapshot, no resume, no record of what was told, no bound. A client's first line names its job.
`python -m benchmarks.bare_stream <store URL> <log key>` prints {"port": N} when it listens.
"""

import asyncio
import json
import sys
from typing import Any

import uvloop
from redis.asyncio import Redis


async def main(store_url: str, key: str) -> None:
    """Serve until the process is ended."""
    sockets: dict[bytes, asyncio.StreamWriter] = {}

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sockets[(await reader.readline()).strip()] = writer
        writer.write(b": ready\n\n")

    server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=4096)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    redis, position = Redis.from_url(store_url), b"$"
    while True:
        found: Any = await redis.xread({key: position}, count=500, block=1000)
        for _, entries in found:
            for position, fields in entries:
                writer = sockets.get(fields[b"j"])
                if writer is not None:
                    writer.write(b"event: %s\nid: %s\ndata: %s\n\n" % (fields[b"t"], position, fields[b"d"]))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
