"""Processes found by the folder they work in: what a test started, directly or through many hands, and what is left.

A process belongs to a folder when its command line, its environment, its working directory or one of its open
files names it. Author helpers that lost their parent are found the same way. Linux only, as `/proc` is.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Process:
    """One process at the moment it was looked at."""

    pid: int
    parent: int
    command: str

    @property
    def service(self) -> str | None:
        """The service it runs, None for anything else."""
        words = self.command.split(" ")
        return next((word.removeprefix("services.") for word in words if word.startswith("services.")), None)

    @property
    def is_child(self) -> bool:
        """Whether it runs author code."""
        return "gpu_worker/child/main.py" in self.command

    def send(self, number: int) -> None:
        """Send a signal; a process that is gone already is fine."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def processes_of(folder: Path) -> list[Process]:
    """Return the living processes that belong to the folder, this one excepted; zombies do not live."""
    needle = os.fsencode(folder)
    return [process for process in _all() if process.pid != os.getpid() and _names(process.pid, needle)]


def end_all(folder: Path) -> list[Process]:
    """Kill what still belongs to the folder and return it; tests clean up with this after they have failed."""
    left = processes_of(folder)
    for process in left:
        process.send(signal.SIGKILL)
    return left


def _all() -> Iterator[Process]:
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):  # it ended while we looked
            command = Path(f"/proc/{entry}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ")
            state, parent = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")[2].split(" ")[:2]
            if state not in "ZX":
                yield Process(int(entry), int(parent), os.fsdecode(command))


def _names(pid: int, needle: bytes) -> bool:
    with contextlib.suppress(OSError):
        if any(needle in Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")):
            return True
        links = [f"/proc/{pid}/cwd", *(f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd"))]
        return any(needle in _target(link) for link in links)
    return False


def _target(link: str) -> bytes:
    with contextlib.suppress(OSError):
        return os.readlink(os.fsencode(link))
    return b""
