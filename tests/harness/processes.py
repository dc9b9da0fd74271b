"""Processes found by the folder they work in: what a test started, directly or through many hands, and what is left.

A process belongs to a folder when its command line, its environment, its working directory or one of its open
files names it. Author helpers that lost their parent are found the same way. Linux only, as `/proc` is.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
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


def processes_of(folder: Path, wanted: Callable[[Process], bool] = lambda _: True) -> list[Process]:
    """Return the living processes that belong to the folder, this one excepted; zombies do not live.

    `wanted` is asked first: to look at all files that all processes have open takes a while. Services hide what tells
    their folder from everybody but root: there they are found as children of what started them.
    """
    needle, every, sees_all = os.fsencode(folder), list(_all()), os.geteuid() == 0
    asked = (process for process in every if process.pid != os.getpid() and (wanted(process) or not sees_all))
    found = {process.pid for process in asked if _names(process, needle)}
    while not sees_all and (more := {process.pid for process in every if process.parent in found} - found):
        found |= more
    return [process for process in every if process.pid in found and wanted(process)]


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
            command = _read(entry, "cmdline").rstrip(b"\0").replace(b"\0", b" ")
            if command:  # threads of the kernel have none, nor has what is dead
                state, parent = _read(entry, "stat").rpartition(b") ")[2].split(b" ", 2)[:2]
                if state not in b"ZX":
                    yield Process(int(entry), int(parent), os.fsdecode(command))


def _names(process: Process, needle: bytes) -> bool:
    pid = process.pid
    with contextlib.suppress(OSError):
        if needle in os.fsencode(process.command) or needle in _read(str(pid), "environ"):
            return True
        links = [f"/proc/{pid}/cwd", *(f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd"))]
        return any(needle in _target(link) for link in links)
    return False


def _read(pid: str, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:  # waits look a hundred times a second
        return file.readall()


def _target(link: str) -> bytes:
    with contextlib.suppress(OSError):
        return os.fsencode(os.readlink(link))
    return b""
