"""The stack's logs: one bounded file per service that the service itself appends to, echoed to standard error.

Promises that no service ever waits for its log: it writes to a file, not to a pipe of ours, so it may outlive
us and needs no reader; and that a standard error nobody reads drops lines instead of stopping the stack.
A line written in the instant of a rotation may be lost.
"""

import contextlib
import os
import queue
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

LIMIT_BYTES = 8 * 1024 * 1024
_READ_BYTES = 256 * 1024
_TAIL_BYTES = 4096
_ECHO_LINES = 2000
_FLUSH_S = 0.5


@dataclass(slots=True)
class ServiceLog:
    """The log file of one service and how far it was echoed."""

    path: Path
    echoed_bytes: int = 0

    @classmethod
    def open(cls, path: Path) -> "ServiceLog":
        """Begin where earlier runs ended."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(path, path.stat().st_size if path.exists() else 0)

    def open_for_writing(self) -> int:
        """A descriptor for the service's standard output and error."""
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def read_new(self) -> list[str]:
        """The complete lines written since the last call; sets a long file aside when all of it was read."""
        # a full disk or a removed folder must not end the stack that writes the log
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            file.seek(self.echoed_bytes)
            text = file.read(_READ_BYTES)
            if len(text) < _READ_BYTES:
                text = text[: text.rfind(b"\n") + 1]
            self.echoed_bytes += len(text)
            if len(text) == 0 and self.echoed_bytes > LIMIT_BYTES:
                self._set_aside()
            return text.decode("utf-8", errors="replace").splitlines()
        return []

    def tail(self, lines: int = 12) -> str:
        """The end of the log, for an error message."""
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
            return "\n".join(text.splitlines()[-lines:])
        return "(no log)"

    def _set_aside(self) -> None:
        # copy and cut, not rename: the service keeps its descriptor, and O_APPEND makes it go on at the new end
        old = self.path.with_suffix(".log.1")
        old.write_bytes(self.path.read_bytes())
        os.truncate(self.path, 0)
        self.echoed_bytes = 0


class StackLog:
    """All logs of a stack: `<folder>/<name>.log` per service, `up.log` for the stack itself, and the echo of both.

    Standard error is behind a bounded queue: a full pipe that nobody reads must not stop the stack.
    """

    def __init__(self, folder: Path, echo: TextIO | None) -> None:
        self._folder = folder
        self._services: list[tuple[str, ServiceLog]] = []
        self._own = ServiceLog.open(folder / "up.log")
        self._lines: queue.Queue[str | None] = queue.Queue(_ECHO_LINES)
        self._dropped = 0
        self._writer = threading.Thread(target=self._write, args=(echo,), name="echo", daemon=True)
        if echo:
            self._writer.start()

    def of_service(self, name: str) -> ServiceLog:
        """The log of a service, echoed from now on."""
        log = ServiceLog.open(self._folder / f"{name}.log")
        self._services.append((name, log))
        return log

    def say(self, text: str) -> None:
        """Log a remark of the stack itself."""
        with contextlib.suppress(OSError), open(self._own.open_for_writing(), "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n")
        self._own.read_new()
        self._echo(f"headrace: {text}")

    def echo_services(self) -> None:
        """Echo what the services wrote since the last call."""
        for name, log in self._services:
            for line in log.read_new():
                self._echo(f"[{name}] {line}")

    def close(self) -> None:
        """Give the last lines a moment to leave."""
        if self._writer.is_alive():
            with contextlib.suppress(queue.Full):
                self._lines.put_nowait(None)
            self._writer.join(_FLUSH_S)

    def _echo(self, line: str) -> None:
        if not self._writer.is_alive():
            return
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def _write(self, echo: TextIO) -> None:
        while (line := self._lines.get()) is not None:
            with contextlib.suppress(OSError, ValueError):
                print(line, file=echo, flush=True)
            if self._dropped:
                self._dropped = 0
                self._echo("headrace: some log lines were not echoed; the files have them all")
