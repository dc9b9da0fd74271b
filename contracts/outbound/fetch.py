"""Brings one file from an address that a caller chose.

Promises: connects only where the guard allows; follows no redirect; at most `size_bytes` are ever written; ends within
`seconds` whatever the server does; every failure is one of two: Refused (asking again cannot help) or Unreachable (it
may). Texts name no part of the URL. Does not look inside the file.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from contracts.outbound.answer import Head
from contracts.outbound.connection import Connection
from contracts.outbound.exchange import encode_request, exchange
from contracts.outbound.guard import Outbound
from contracts.outbound.terms import (
    Blocked,
    Bounds,
    LookupFailed,
    Malformed,
    ProxyFailed,
    Refused,
    Unreachable,
)
from contracts.webhook_target import explain, judge_url, place_of

CHUNK_BYTES = 256 << 10
TRANSIENT_STATUSES = frozenset({408, 425, 429})
_ADDRESS = "it leads to an address that must not be reached from here"


class Fetcher:
    """Holds settings only, so any number of fetches may run at once."""

    def __init__(self, user_agent: str, outbound: Outbound | None = None) -> None:
        self._user_agent, self._outbound = user_agent, outbound or Outbound()

    async def fetch(self, url: str, target: Path, bounds: Bounds) -> int:
        """Write the file to `target`, which must not exist, and return its size. Raises Refused, Unreachable."""
        fault = judge_url(url, bounds.allow_private)
        if fault is not None:
            raise Refused(f"its URL {explain(fault)}")
        begun: list[bool] = []  # whether the file has begun to arrive
        try:
            async with asyncio.timeout(bounds.seconds):
                return await self._get(url, target, bounds, begun)
        except Blocked:
            raise Refused(_ADDRESS) from None
        except TimeoutError:
            if begun:
                raise Refused(f"it did not arrive within {bounds.seconds:g} s") from None
            raise Unreachable("its server did not answer in time") from None
        except ssl.SSLError:
            raise Refused("its server has no certificate that can be trusted") from None
        except ProxyFailed:
            raise Unreachable("the proxy on the way to it did not work") from None
        except (LookupFailed, Malformed, OSError) as error:
            if isinstance(error, OSError) and error.filename == str(target):  # our own disk
                raise Unreachable(f"it could not be written: {error.strerror}") from None
            raise Unreachable(f"its server could not be talked to ({type(error).__name__})") from None

    async def _get(self, url: str, target: Path, bounds: Bounds, begun: list[bool]) -> int:
        place = place_of(url)
        headers = {"User-Agent": self._user_agent, "Accept": "*/*", "Accept-Encoding": "identity"}
        request = encode_request("GET", place, headers)
        async with exchange(self._outbound, place, bounds.allow_private, request) as answer:
            _check_head(await answer.head(), bounds.size_bytes)
            begun.append(True)
            return await _write(answer, target, bounds.size_bytes)


def _check_head(head: Head, size_bytes: int) -> None:
    status = head.status
    if 300 <= status < 400:
        raise Refused("its server sends elsewhere, and redirects are not followed")
    if status in TRANSIENT_STATUSES or status >= 500:
        raise Unreachable(f"its server answered {status}")
    if status != 200:
        raise Refused(f"its server answered {status}")
    if head.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refused("its server sends it compressed, which was not asked for")
    if "transfer-encoding" not in head.headers and int(head.headers.get("content-length", "0")) > size_bytes:
        raise Refused(f"it is larger than {size_bytes} bytes")


async def _write(answer: Connection, target: Path, size_bytes: int) -> int:
    """Write what arrives, chunk by chunk, in threads: a slow disk must not hold up the loop."""
    received = 0
    file = await asyncio.to_thread(target.open, "xb")
    try:
        while chunk := await answer.read(CHUNK_BYTES):
            received += len(chunk)
            if received > size_bytes:
                raise Refused(f"it is larger than {size_bytes} bytes")
            await asyncio.to_thread(file.write, chunk)
    finally:
        await asyncio.to_thread(file.close)
    return received
