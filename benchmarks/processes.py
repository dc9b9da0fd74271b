"""Processes that a benchmark starts: wait for their first line, read their CPU time, end them.

Promises that leaving the `with` block ends the process, and that its children are not forgotten in the CPU time.
CPU times come from /proc, so they are None elsewhere than on Linux.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

READY_LIMIT_S = 120.0
STOP_LIMIT_S = 20.0
ROOT = Path(__file__).resolve().parents[1]
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(*command: str, env: Mapping[str, str] | None = None) -> Iterator[tuple[dict[str, Any], int]]:
    """Run a Python program that prints one line of JSON when it is ready; yields that and its pid."""
    process = subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE
    )
    try:
        yield json.loads(_first_line(process)), process.pid
    finally:
        end(process)
        assert process.stdout is not None
        process.stdout.close()


def output_of(*command: str, limit_s: float = 120.0) -> dict[str, Any]:
    """Run a Python program to its end and return the JSON that it printed."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, timeout=limit_s, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def cpu_s(pid: int) -> float | None:
    """Return the CPU time that a process and its living descendants have used, by 10 ms."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    own = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return own + sum(cpu_s(int(child)) or 0.0 for child in children)


def _first_line(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], READY_LIMIT_S)[0]:
        raise TimeoutError(f"{process.args!r} was not ready after {READY_LIMIT_S:.0f} s")
    line = process.stdout.readline()
    if not line:
        raise ChildProcessError(f"{process.args!r} ended with {process.wait(STOP_LIMIT_S)} before it was ready")
    return line


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ask a process to end, and see to it that it has."""
    process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
