"""Real processes for the tests of the embedded store: users that hold it, and looks at what is left."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 60.0
PROC = Path("/proc")
IS_LINUX = (PROC / "self").exists()
_USER = """
import itertools, json, sys
from pathlib import Path
from headrace.store_server import ensure
told = json.loads(sys.argv[1])
for _ in itertools.chain(["first"], sys.stdin):
    store = ensure(Path(told["data_dir"]), server=told["server"], timeout_s=60)
    print(json.dumps({"url": store.url, "pid": store.pid}), flush=True)
"""


@dataclass
class User:
    """A process that holds the store; each line written to it makes it call `ensure` again."""

    process: subprocess.Popen[str]
    url: str = ""
    pid: int = 0

    def hear(self) -> "User":
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        self.url, self.pid = answer["url"], answer["pid"]
        return self

    def ensure_again(self) -> "User":
        assert self.process.stdin is not None
        self.process.stdin.write("again\n")
        self.process.stdin.flush()
        return self.hear()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)


def start_user(data_dir: Path, server: str | None) -> User:
    told = json.dumps({"data_dir": str(data_dir), "server": server})
    pipe = subprocess.PIPE
    return User(subprocess.Popen([sys.executable, "-c", _USER, told], stdin=pipe, stdout=pipe, text=True))


def supervisors(data_dir: Path) -> list[int]:
    """Pids of the supervisors of this directory's store."""
    home = str(data_dir.resolve() / "store")
    return [pid for pid, command in _commands() if "supervisor.py" in command and f" {home} " in command]


def wait_for(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s in vain for: {what}"
        select.select([], [], [], 0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return _state(pid) != "Z"


def kill_9(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def wait_gone(*pids: int) -> None:
    wait_for(lambda: not any(map(alive, pids)), f"the end of {pids}")


def _commands() -> Iterator[tuple[int, str]]:
    if not IS_LINUX:
        listing = subprocess.run(["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=True)
        for line in listing.stdout.splitlines():
            pid, _, command = line.strip().partition(" ")
            yield int(pid), command
        return
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended while we looked
            yield int(folder.name), os.fsdecode((folder / "cmdline").read_bytes().replace(b"\0", b" "))


def _state(pid: int) -> str:
    if IS_LINUX:  # asked a hundred times a second: no process for each
        with contextlib.suppress(OSError):
            return (PROC / str(pid) / "stat").read_text().rpartition(") ")[2][:1]
        return "Z"
    listing = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listing.stdout.strip()[:1]
