"""One request to a place that a caller named, and its answer.

Promises: the request goes out once; whatever ends the exchange, its connection is closed, unless it is kept for the
same receiver. It has no clock: put one around all of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from contracts.outbound.connection import Connection
from contracts.outbound.guard import Outbound
from contracts.outbound.kept import KeptConnections
from contracts.webhook_target import AllowPrivate, Place


@asynccontextmanager
async def exchange(
    outbound: Outbound,
    place: Place,
    allow_private: AllowPrivate,
    request: bytes,
    kept: KeptConnections | None = None,
    receiver: str = "",
) -> AsyncIterator[Connection]:
    """Send on a kept connection of the receiver, or a new one. Raises what `Outbound.connect` does."""
    connection = None if kept is None else kept.take(receiver, place)
    if connection is None:
        connection = await outbound.connect(place, allow_private, Connection)
    connection.send(request)
    try:
        yield connection
    finally:
        if kept is not None and connection.may_be_kept:
            kept.keep(receiver, place, connection)
        else:
            connection.close()


def encode_request(
    method: str, place: Place, headers: Mapping[str, str], body: bytes = b"", *, keep: bool = False
) -> bytes:
    """Return a request as it is sent. Raises ValueError for a header that would not stay one.

    >>> from contracts.webhook_target import place_of
    >>> encode_request("GET", place_of("https://a.example/x"), {"Accept": "*/*"})
    b'GET /x HTTP/1.1\\r\\nHost: a.example\\r\\nAccept: */*\\r\\nConnection: close\\r\\n\\r\\n'
    """
    lines = [f"{method} {place.path} HTTP/1.1", f"Host: {place.authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    lines.append("Connection: keep-alive" if keep else "Connection: close")
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1 or "\0" in text:
        raise ValueError("a header holds the end of a line")
    return text.encode("ascii") + b"\r\n\r\n" + body
