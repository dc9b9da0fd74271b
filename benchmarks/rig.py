"""What is measured: a store of its own, ingest alone on it, or the whole stack, on loopback in a new directory.

Promises that everything is stopped and removed on leaving. The data directory is in the current temporary folder, so
TMPDIR chooses the disk.
"""

import asyncio
import contextlib
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import READY_LIMIT_S, ROOT, STOP_LIMIT_S, running
from headrace.stack.bootstrap import introduce
from headrace.stack.keys_file import mint_keys
from headrace.stack.port import reserve
from headrace.store_server import ensure, release

PIPELINES = Path(__file__).parent / "pipelines" / "pipelines.toml"
POOL = "default"
TENANT = "t_default"
_NO_LIMITS = {
    "HEADRACE_ADMISSION__TENANT_JOBS": "1000000",
    "HEADRACE_LOG__LEVEL": "warning",
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send requests, and the processes behind it by service."""

    port: int
    key: str
    store_url: str
    pids: dict[str, list[int]]


@contextlib.contextmanager
def own_store() -> Iterator[tuple[str, Path]]:
    """Run an embedded store; yields its URL and its data directory."""
    data_dir = Path(tempfile.mkdtemp(prefix="hr-bench-"))
    try:
        yield ensure(data_dir).url, data_dir
        release(data_dir, wait_s=STOP_LIMIT_S)
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


@contextlib.contextmanager
def ingest_alone(store_url: str, data_dir: Path) -> Iterator[Target]:
    """Run one ingest process on the store: nothing schedules what is submitted."""
    keys = mint_keys()
    asyncio.run(introduce(store_url, keys))
    reserved = reserve("127.0.0.1", 0)
    env = os.environ | _NO_LIMITS | {
        "HEADRACE_REDIS__URL": store_url, "HEADRACE_DATA_DIR": str(data_dir), "HEADRACE_PIPELINES": str(PIPELINES),
        "HEADRACE_INGEST__PORT": str(reserved.number),
    }  # fmt: skip
    process = subprocess.Popen([sys.executable, "-m", "services.ingest"], cwd=ROOT, env=env)
    try:
        _wait_ready(reserved.number, process)
        yield Target(reserved.number, keys.api_key, store_url, {"ingest": [process.pid]})
    finally:
        process.terminate()
        process.wait(STOP_LIMIT_S)
        reserved.close()


@contextlib.contextmanager
def stack(devices: str, pipelines: Path = PIPELINES) -> Iterator[Target]:
    """Run `headrace up` with these devices."""
    data_dir = Path(tempfile.mkdtemp(prefix="hr-bench-"))
    flags = ("--port", "0", "--data-dir", str(data_dir), "--pipelines", str(pipelines), "--devices", devices)
    try:
        with running("-m", "headrace", "up", "--json", *flags, env=_NO_LIMITS) as (ready, _):
            yield _target(ready)
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)


def _target(ready: dict[str, Any]) -> Target:
    listed = {name: pids if isinstance(pids, list) else [pids] for name, pids in ready["pids"].items() if pids}
    return Target(int(ready["url"].rpartition(":")[2]), ready["apiKey"], ready["redis"], listed)


def _wait_ready(port: int, process: "subprocess.Popen[bytes]") -> None:
    end_s = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < end_s and process.poll() is None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.02)
    raise ChildProcessError("services.ingest did not become ready")
