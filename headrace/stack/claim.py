"""One stack per data directory, and none beside the leftovers of a killed one.

Two locks that the kernel frees: `up.lock` is held by the stack alone, `services.lock` is inherited by its services.
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import ConfigError, HeadraceError, Unavailable
from headrace.store_server import locks

LEFTOVERS_LIMIT_S = 15.0
_POLL_S = 0.05


class AlreadyRunning(HeadraceError):
    """Another stack uses the data directory."""

    code = "already_running"


@dataclass(frozen=True, slots=True)
class Claim:
    """A data directory that is ours; services inherit `services_fd`."""

    up_fd: int
    services_fd: int

    def close(self) -> None:
        """Give it up; it stays taken as long as a service lives."""
        os.close(self.services_fd)
        os.close(self.up_fd)


async def claim(data_dir: Path) -> Claim:
    """Take a data directory.

    Raises:
        AlreadyRunning: another stack uses it.
        Unavailable: services of an earlier, killed stack do not end.
    """
    make_data_dir(data_dir)
    up_fd = locks.take_exclusive(data_dir / "up.lock")
    if up_fd is None:
        raise AlreadyRunning(f"a stack runs in {data_dir} already: use it, or choose another --data-dir")
    try:
        return Claim(up_fd, await _wait_for_leftovers(data_dir / "services.lock"))
    except BaseException:
        os.close(up_fd)
        raise


def make_data_dir(path: Path) -> None:
    """Make the data directory, for this user alone. Raises ConfigError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise ConfigError([f"the data directory cannot be made: {fault}"]) from fault


async def _wait_for_leftovers(lock: Path) -> int:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + LEFTOVERS_LIMIT_S
    while (services_fd := locks.take_exclusive(lock)) is None:
        if loop.time() > deadline_s:
            raise Unavailable("the data directory", f"services of an earlier run still hold {lock}: stop them first")
        await asyncio.sleep(_POLL_S)
    return services_fd
