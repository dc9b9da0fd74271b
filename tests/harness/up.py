"""One `headrace up` of a test's own: the process, its services, and what is spawned beside it.

Promises the settings below and a short folder of its own. `signal` and `kill` hit the processes that run now, not those
that ran at the start: `up` restarts what dies.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

import orjson

from tests.harness.processes import Process, end_all, processes_of

ROOT = Path(__file__).parents[2]
PIPELINES = ROOT / "tests/pipelines/pipelines.toml"
START_LIMIT_S = 90.0
STOP_LIMIT_S = 30.0
LEASE_S = 3.0

SETTINGS = {
    "HEADRACE_WORKER__HEARTBEAT_S": "0.5",
    "HEADRACE_WORKER__LEASE_S": f"{LEASE_S:g}",
    "HEADRACE_WORKER__DRAIN_S": "2",
    "HEADRACE_SCHEDULER__LEASE_S": "2",
    "HEADRACE_RETRY__BASE_S": "0.2",
    "HEADRACE_WEBHOOK__TIMEOUT_S": "2",
    "HEADRACE_WEBHOOK__SCHEDULE": "0,0.3,0.6,1,1,1,1,2,2,2,2,2,2,2,2",
    "HEADRACE_WEBHOOK__ALLOW_PRIVATE": "loopback",
}


class Up:
    """`headrace up` and what it started."""

    python_path = str(ROOT)

    def __init__(
        self, *, store_url: str | None = None, workers: int = 1, devices: str = "cpu",
        settings: dict[str, str] | None = None, log_url: str | None = None, pipelines: Path = PIPELINES,
    ) -> None:  # fmt: skip
        """`store_url`: a server of the test's own; `log_url`: the way to it that no proxy disturbs."""
        self.folder = Path(tempfile.mkdtemp(prefix="hr-"))
        self.settings = SETTINGS | (settings or {}) | ({"HEADRACE_REDIS__URL": store_url} if store_url else {})
        self.arguments = ["--port", "0", "--data-dir", str(self.folder / "d"), "--pipelines", str(pipelines),
                          "--workers", str(workers), "--devices", devices]  # fmt: skip
        self.ready: dict[str, Any] = {}
        self._log_url = log_url or store_url
        self._heard = 0
        self._up: subprocess.Popen[bytes] | None = None
        self._spawned: list[subprocess.Popen[bytes]] = []
        self._output: IO[bytes] = (self.folder / "up.log").open("ab")

    def environment(self) -> dict[str, str]:
        """What `up` is started with."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        return plain | self.settings

    def start(self) -> None:
        """Start it and return when it said that it is ready."""
        command = [sys.executable, "-m", "headrace", "up", "--json", *self.arguments]
        self._up = subprocess.Popen(
            command, cwd=ROOT, env=self.environment(), stdout=subprocess.PIPE, stderr=self._output,
            start_new_session=True,
        )  # fmt: skip
        assert self._up.stdout is not None
        readable, _, _ = select.select([self._up.stdout], [], [], START_LIMIT_S)
        line = self._up.stdout.readline() if readable else b""
        if not line:
            raise AssertionError(f"the stack is not ready:\n{self.output()}")
        self.ready = orjson.loads(line)
        self.store_url: str = self._log_url or self.ready["redis"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it; returns its exit status. What was spawned beside it is stopped first."""
        self.end_spawned()
        up, self._up = self._up, None
        return _end(up, number) if up else 0

    def end_spawned(self) -> None:
        """Ask what was spawned beside it to end, and wait for that."""
        for process in self._spawned:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGTERM)
        while self._spawned:
            _end(self._spawned.pop(), signal.SIGTERM)

    def kill_up(self) -> None:
        """SIGKILL to `headrace up` itself; `stop` has nothing left to do then."""
        assert self._up is not None
        self._up.kill()
        self._up.wait()
        self._up = None

    def discard(self) -> list[Process]:
        """Remove everything; returns the processes that should not have been there any more."""
        left = end_all(self.folder)
        self._output.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        return left

    def said(self) -> str:
        """What it and its services wrote to standard error since `watched` was entered."""
        return (self.folder / "up.log").read_bytes()[self._heard :].decode(errors="replace")

    def output(self) -> str:
        """The end of that, for a failure's message."""
        return self.said()[-6000:]

    def leftovers(self) -> list[Process]:
        """Processes that still belong to it: services, store, author code and what author code started."""
        return processes_of(self.folder)

    def processes(self, service: str | None = None) -> list[Process]:
        """Processes of the stack that run a service now, in the order of their pids; None: of any."""
        found = processes_of(
            self.folder, lambda process: process.service is not None and service in (process.service, None)
        )
        return sorted(found, key=lambda process: process.pid)

    def children(self, supervisor: int | None = None) -> list[Process]:
        """Processes that run author code, of one supervisor or of all."""
        return processes_of(self.folder, lambda process: process.is_child and supervisor in (process.parent, None))

    def signal(self, service: str, number: int) -> list[int]:
        """Send a signal to all processes of a service that run now; returns their pids."""
        found = self.processes(service)
        assert found, f"no {service} is running:\n{self.output()}"
        for process in found:
            process.send(number)
        return [process.pid for process in found]

    def kill(self, service: str) -> list[int]:
        """SIGKILL to all processes of a service; returns their pids."""
        return self.signal(service, signal.SIGKILL)

    def spawn(self, service: str, **settings: str) -> subprocess.Popen[bytes]:
        """Run one more process of a service, that nobody restarts, with the stack's own settings and these."""
        environment = self.environment() | {
            "HEADRACE_REDIS__URL": self.ready["redis"],
            "HEADRACE_DATA_DIR": str(self.folder / "d"),
            "HEADRACE_PIPELINES": self.arguments[5],
            "HEADRACE_WORKER__DEVICES": self.arguments[-1],
            "HEADRACE_INGEST__PORT": "0",
            "PYTHONPATH": self.python_path,
        }
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"services.{service}"], cwd=ROOT, env=environment | settings,
            stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output, start_new_session=True,
        )  # fmt: skip
        self._spawned.append(process)
        return process


def _end(process: "subprocess.Popen[bytes]", number: int) -> int:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
    try:
        return process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError(f"{process.args} did not stop within {STOP_LIMIT_S:g} s") from None
