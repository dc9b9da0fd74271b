"""A real `headrace up` for tests: started as a person starts it, read as a program reads it."""

import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.processes import Process, end_all, processes_of

PATIENCE_S = 100.0
QUICK = {"HEADRACE_WORKER__DRAIN_S": "0.5", "HEADRACE_WORKER__LEASE_S": "2", "HEADRACE_WORKER__HEARTBEAT_S": "0.2"}
SAMPLES = Path(__file__).parents[1] / "pipelines" / "pipelines.toml"


@dataclass
class Up:
    """One run of `headrace up --json` and what it said when it was ready."""

    process: "subprocess.Popen[str]"
    data_dir: Path
    ready: dict[str, Any] = field(default_factory=dict)

    def pid_of(self, service: str) -> int:
        pid = self.ready["pids"][service]
        return int(pid if service == "store" else pid[0])

    def left(self) -> list[Process]:
        """What still runs and belongs to the data directory."""
        return processes_of(self.data_dir)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def clean_up(self) -> None:
        """End everything, also after a failed test."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        end_all(self.data_dir)
        if self.process.stdout:
            self.process.stdout.close()


def plain_environment(**settings: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")} | settings


def start_up(data_dir: Path, *flags: str, **settings: str) -> Up:
    """Start a stack and wait until it says that it is ready."""
    up = launch_up(data_dir, *flags, **settings)
    assert up.process.stdout is not None
    readable, _, _ = select.select([up.process.stdout], [], [], PATIENCE_S)
    line = up.process.stdout.readline() if readable else ""
    if not line:
        up.clean_up()
        raise AssertionError(f"`headrace up` did not become ready:\n{log_of(data_dir)}")
    up.ready = json.loads(line)
    return up


def launch_up(data_dir: Path, *flags: str, **settings: str) -> Up:
    """Start a stack without waiting; its standard error goes to a file, as nobody reads it."""
    data_dir.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "headrace", "up", "--json", "--data-dir", str(data_dir)]
    command += ["--pipelines", str(SAMPLES), *flags]
    if "--port" not in flags:
        command += ["--port", "0"]
    with _log(data_dir).open("ab") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=plain_environment(**(QUICK | settings)),
            start_new_session=True,
        )
    return Up(process, data_dir)


def log_of(data_dir: Path) -> str:
    return _log(data_dir).read_text(errors="replace")[-6000:]


def _log(data_dir: Path) -> Path:
    return data_dir.with_name(f"{data_dir.name}.stderr")
