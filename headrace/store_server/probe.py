"""Ask a server on a unix socket how it is, without a client library: PING, INFO, CONFIG GET, SHUTDOWN.

Promises an answer within the given time and never raises for a server that is away, loading or stuck.
"""

import socket
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

Reply = bytes | int | list["Reply"] | None


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a server said of itself. `pid` is its own view: meaningless in another pid namespace."""

    pid: int
    ready: bool
    fsync: str


def look(path: Path, *, timeout_s: float = 1.0) -> ServerState | None:
    """The state of the server on this socket; None when nobody answers there."""
    try:
        pong, info, fsync = _ask(
            path, ["PING"], ["INFO", "server"], ["CONFIG", "GET", "appendfsync"], timeout_s=timeout_s
        )
    except (OSError, ValueError):
        return None
    if not isinstance(info, bytes):
        return None
    policy = fsync[1] if isinstance(fsync, list) and len(fsync) == 2 else b""
    return ServerState(_process_id(info), pong == b"PONG", policy.decode() if isinstance(policy, bytes) else "")


def shut_down(path: Path, *, timeout_s: float = 1.0) -> None:
    """Ask the server to flush its file and exit; by command, as its pid may belong to another namespace."""
    try:
        _ask(path, ["SHUTDOWN"], timeout_s=timeout_s)
    except (OSError, ValueError):
        return


def _process_id(info: bytes) -> int:
    fields = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
    return int(fields[b"process_id"])


def _ask(path: Path, *commands: list[str], timeout_s: float) -> list[Reply]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        sock.connect(str(path))
        sock.sendall(b"".join(_encode(words) for words in commands))
        with sock.makefile("rb") as stream:
            return [_read(stream) for _ in commands]


def _encode(words: list[str]) -> bytes:
    parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
    return "".join(parts).encode("ascii")


def _read(stream: BufferedReader) -> Reply:
    """One RESP2 reply; an error reply comes back as its text, `-` included."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server closed the connection")
    mark, rest = line[:1], line[1:-2]
    if mark == b"+":
        return rest
    if mark == b"-":
        return line[:-2]
    if mark == b":":
        return int(rest)
    if mark == b"$":
        return None if rest == b"-1" else stream.read(int(rest) + 2)[:-2]
    if mark == b"*":
        return [_read(stream) for _ in range(int(rest))]
    raise ValueError(f"not a RESP reply: {line[:20]!r}")
