"""Keep one service process running: start it, restart what dies with backoff, stop it within a limit.

Promises that the process is never started again once `stop` was called and that nobody waits for it longer
than the limit. Each process leads a session of its own, so a signal to our group reaches it through us alone.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.stack import leash
from headrace.stack.logs import ServiceLog

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 5.0
LONG_LIFE_S = 2.0
_KILLED_WAIT_S = 1.5


def next_delay_s(last_delay_s: float, lived_s: float) -> float:
    """How long to wait before the next start; `last_delay_s` 0 means there was no wait yet.

    >>> [next_delay_s(d, lived_s=0.1) for d in (0, 0.2, 0.4, 3.2, 5.0)]
    [0.2, 0.4, 0.8, 5.0, 5.0]
    >>> next_delay_s(5.0, lived_s=2.0)
    0.2
    """
    if lived_s >= LONG_LIFE_S or last_delay_s == 0:
        return FIRST_DELAY_S
    return min(LONGEST_DELAY_S, 2 * last_delay_s)


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """What to run: a service, its name among its equals, its command line and environment."""

    service: str
    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)  # may hold secrets


@dataclass(slots=True)
class Child:
    """One service process and its next incarnations.

    Attributes:
        told: called with `+PID` and `-PID` as processes come and go.
        kept_fds: descriptors that the process inherits and holds as long as it lives.
    """

    spec: ServiceSpec
    log: ServiceLog
    told: Callable[[str], None]
    say: Callable[[str], None]
    kept_fds: Sequence[int] = ()
    pid: int | None = None
    last_exit: int | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _task: "asyncio.Task[None] | None" = None

    def start(self) -> None:
        """Start the process and keep it running in the background."""
        self._task = asyncio.create_task(self._run(), name=self.spec.name)

    def ask_to_stop(self) -> None:
        """SIGTERM, and no further start."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the whole group, and no further start."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    async def wait_stopped(self, limit_s: float) -> None:
        """Wait for the end; after the limit the whole process group is killed."""
        if self._task is None:
            return
        done, _ = await asyncio.wait([self._task], timeout=max(0.0, limit_s))
        if not done:
            self.say(f"{self.spec.name} did not stop in time; killing it")
            self.kill()
            await asyncio.wait([self._task], timeout=_KILLED_WAIT_S)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        delay_s = 0.0
        while not self._stopping.is_set():
            started_s = loop.time()
            self.last_exit = await self._try_once()
            if self._stopping.is_set():
                return
            delay_s = next_delay_s(delay_s, loop.time() - started_s)
            self.say(f"{self.spec.name} ended with {self.last_exit}; starting it again in {delay_s} s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._stopping.wait()

    async def _try_once(self) -> int | None:
        """Run the process to its end; None when the system would not start it (no memory, no disk, no descriptor)."""
        try:
            return await self._run_once()
        except OSError as fault:
            self.say(f"{self.spec.name} could not be started: {fault}")
            return None

    async def _run_once(self) -> int:
        log_fd = self.log.open_for_writing()
        try:
            process = await asyncio.create_subprocess_exec(
                *[sys.executable, "-S", "-I", leash.__file__, str(os.getpid()), *self.spec.command],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log_fd,
                stderr=log_fd,
                env=dict(self.spec.environment),
                pass_fds=self.kept_fds,
                umask=0o077,  # pictures and logs are the caller's: for this user only, wherever the data directory lies
                start_new_session=True,
            )
        finally:
            os.close(log_fd)
        self.pid = process.pid
        self.told(f"+{process.pid}")
        if self._stopping.is_set():  # asked between the decision to start and now
            self._signal(signal.SIGTERM)
        try:
            return await process.wait()
        finally:
            self.pid = None
            self.told(f"-{process.pid}")

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if number is signal.SIGKILL:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
