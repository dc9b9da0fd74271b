"""The way through the operator's proxy: CONNECT to an address that was judged.

Promises: the proxy is told an address and a port, never a name, a path or a header of the request; what follows goes
through the tunnel as it would go without it. Whatever the proxy itself does wrong is `ProxyFailed`. When it says of the
target that it cannot be reached (502, 503, 504), that is the target's failure.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket

from contracts.outbound.names import Resolver
from contracts.outbound.terms import LookupFailed, Proxy, ProxyFailed

CONNECT_S = 5.0  # a proxy stands near by
REPLY_BYTES_MAX = 16 << 10
SAYS_UNREACHABLE = frozenset({502, 503, 504})
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})[ \r]")


async def open_tunnel(proxy: Proxy, names: Resolver, address: str, port: int) -> socket.socket:
    """Return a socket whose other end is that address. Raises ProxyFailed, OSError; whoever has it closes it."""
    handle = await _reach(proxy, names)
    try:
        status = await _ask(handle, proxy, f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
        if status in SAYS_UNREACHABLE:
            raise OSError(errno.EHOSTUNREACH, "the proxy cannot reach it")
        if not 200 <= status <= 299:
            raise ProxyFailed
    except BaseException:
        handle.close()
        raise
    return handle


async def _reach(proxy: Proxy, names: Resolver) -> socket.socket:
    try:
        async with asyncio.timeout(CONNECT_S):
            addresses = await names.resolve(proxy.host)
            for number, address in enumerate(addresses, 1):
                try:
                    return await _connect(address, proxy.port)
                except OSError:
                    if number == len(addresses):
                        raise
    except (OSError, LookupFailed):
        raise ProxyFailed from None
    raise ProxyFailed


async def _connect(address: str, port: int) -> socket.socket:
    handle = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        handle.setblocking(False)
        await asyncio.get_running_loop().sock_connect(handle, (address, port))
    except BaseException:
        handle.close()
        raise
    return handle


async def _ask(handle: socket.socket, proxy: Proxy, target: str) -> int:
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    loop, reply = asyncio.get_running_loop(), b""
    try:
        await loop.sock_sendall(handle, "\r\n".join([*lines, "", ""]).encode())
        while b"\r\n\r\n" not in reply and len(reply) < REPLY_BYTES_MAX:
            if not (read := await loop.sock_recv(handle, 4_096)):
                break
            reply += read
    except OSError:
        raise ProxyFailed from None
    match = _STATUS.match(reply)
    # Nothing may follow its head: whoever is behind the tunnel has not been spoken to yet.
    if match is None or (match[1] < b"300" and reply.find(b"\r\n\r\n") != len(reply) - 4):
        raise ProxyFailed
    return int(match[1])
