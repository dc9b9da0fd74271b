"""Baseline of deliveries: a loop that signs a body and POSTs it with aiohttp, a number of them at a time.

No store, no retries, no record of what came of it, no guard. `python -m benchmarks.bare_sender URL COUNT AT_ONCE BYTES
kept|fresh` prints {"cpu_s", "wall_s"}; `kept` uses its connections again, `fresh` has one for each POST.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import sys
import time
from itertools import count

import aiohttp
import uvloop

KEY = bytes(range(32))


async def main(url: str, total: int, at_once: int, body: bytes, is_fresh: bool) -> None:
    """Send all of them and tell what it took."""
    numbers = count()
    connector = aiohttp.TCPConnector(limit=at_once, force_close=is_fresh)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send() -> None:
            while (number := next(numbers)) < total:
                headers = signed(f"evt_{number}", int(time.time()), body)
                async with session.post(url, data=body, headers=headers) as response:
                    await response.read()

        begun_s, cpu_s = time.monotonic(), time.process_time()
        await asyncio.gather(*(send() for _ in range(at_once)))
        print(json.dumps({"cpu_s": time.process_time() - cpu_s, "wall_s": time.monotonic() - begun_s}), flush=True)


def signed(message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks."""
    content = f"{message_id}.{timestamp_s}.".encode() + body
    signature = base64.b64encode(hmac.digest(KEY, content, hashlib.sha256)).decode()
    return {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": f"v1,{signature}",
    }


if __name__ == "__main__":
    target, *numbers_given, how = sys.argv[1:]
    amount, parallel, size = (int(each) for each in numbers_given)
    uvloop.run(main(target, amount, parallel, b"x" * size, how == "fresh"))
