"""One child process: a listed environment, its own session, spoken to by frames, always reaped.

Promises: nothing of the supervisor's environment or descriptors reaches the child but what is named here;
when the child ends, for whatever reason, its whole process group is ended; when the supervisor ends, so does
the group (child/main.py). Does not promise that helpers which left the group by a new session are found.
"""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from services.gpu_worker.process.child_log import ChildLog
from services.gpu_worker.process.decoding import Decoder
from services.gpu_worker.process.frames import Frame, ProtocolError
from services.gpu_worker.process.memory import ProcessMemory

MAIN = Path(__file__).parents[1] / "child" / "main.py"
#: After the group is dead its sockets close by themselves, unless a helper escaped into its own session.
LAST_WORDS_S = 1.0
STACK_BYTES = 1 << 20  # of a thread in a child, unless it asks for more
#: Taken over from the supervisor; everything else is named by `child_environment` or the model.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What is started: an author's file under an interpreter."""

    entry: Path
    interpreter: str
    environment: Mapping[str, str]
    inherited_fds: tuple[int, ...] = ()  # the device's lock
    memory: Callable[[int], ProcessMemory] = ProcessMemory  # how its memory is limited and measured


def child_environment(
    own: Mapping[str, str], model: Mapping[str, str], threads: int, limits_memory: bool
) -> dict[str, str]:
    """Return the whole environment of a child; `model` wins.

    Idle OpenMP threads must not spin on cores that others need. With a memory slice, big blocks go back to
    the kernel when freed, so that the figures are those of live objects.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    chosen = {
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",  # else changing sizes leave holes that nobody can use
        "HF_HUB_OFFLINE": "1",  # a job must not wait for gigabytes, nor depend on somebody else's server
        **dict.fromkeys(names, str(threads)),
    }
    if limits_memory:
        chosen |= {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    return {name: own[name] for name in INHERITED if name in own} | chosen | dict(model)


class ChildProcess(asyncio.Protocol):
    """The live child. `on_frame` gets each frame; `gone` is done once it is reaped and has said its last."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        log: ChildLog,
        control: socket.socket,
        cancels: socket.socket,
        lifeline_fd: int,
        on_frame: Callable[[Frame], None],
        on_violation: Callable[[ProtocolError], None],
        memory: Callable[[int], ProcessMemory] = ProcessMemory,
    ) -> None:
        self.pid, self.log, self.memory = process.pid, log, memory(process.pid)
        self._process, self._lifeline_fd = process, lifeline_fd
        self._control, self._cancels = control, cancels
        self._on_frame, self._on_violation = on_frame, on_violation
        self._decoder = Decoder()
        self._loop = asyncio.get_running_loop()
        self._silent: asyncio.Future[None] = self._loop.create_future()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._transport: asyncio.WriteTransport | None = None
        self.gone = asyncio.ensure_future(self._watch_end())  # exit status, negative = signal
        threading.Thread(target=self._wait_for_exit, daemon=True, name=f"reap-{self.pid}").start()

    async def connect(self) -> None:
        """Begin to hear the child. Its first frames may be handled before this returns: be ready for them."""
        await self._loop.create_unix_connection(lambda: self, sock=self._control)

    def send(self, frame: bytes) -> None:
        """Write a frame; to a dead child it is lost, as its end is told by `gone`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    def cancel(self, frame: bytes) -> None:
        """Write a frame to the socket that is read while author code runs; if that is full, a signal has to follow."""
        with contextlib.suppress(OSError):
            self._cancels.send(frame)

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the child and the author's helpers; nothing happens once it is reaped."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's transports are no subclass of it

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                self._on_frame(frame)
        except ProtocolError as error:
            if self._transport is not None:
                self._transport.abort()
            self._on_violation(error)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._silent.done():
            self._silent.set_result(None)

    def _wait_for_exit(self) -> None:
        # Without reaping, where the system can: the group's id must not be free before the group is killed.
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the supervisor itself is ending
            self._loop.call_soon_threadsafe(self._on_exit)

    def _on_exit(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._exited.set_result(self._process.wait())

    async def _watch_end(self) -> int:
        status = await self._exited
        await asyncio.wait([self._silent], timeout=LAST_WORDS_S)
        (self._transport.abort if self._transport is not None else self._control.close)()
        self.log.close()
        self.memory.close()
        self._cancels.close()
        os.close(self._lifeline_fd)
        return status


def cannot_start(interpreter: str, error: OSError) -> str:
    """Return what callers are told when a model's child cannot be started: not where the interpreter was looked for."""
    what = "its `interpreter` in pipelines.toml" if interpreter else "a child"
    return f"cannot start {what}: {error.strerror}"


def spawn(
    spec: ChildSpec, on_frame: Callable[[Frame], None], on_violation: Callable[[ProtocolError], None]
) -> ChildProcess:
    """Start a child, which is heard once it is connected; raises OSError if its interpreter cannot be started."""
    control, cancels = socket.socketpair(), socket.socketpair()
    lifeline, log = os.pipe(), os.pipe()
    try:
        process = _popen(spec, control[1].fileno(), cancels[1].fileno(), lifeline[0], log[1])
    except OSError:
        control[0].close()
        cancels[0].close()
        os.close(lifeline[1])
        os.close(log[0])
        raise
    finally:
        control[1].close()
        cancels[1].close()
        os.close(lifeline[0])
        os.close(log[1])
    cancels[0].setblocking(False)
    return ChildProcess(
        process, ChildLog(log[0]), control[0], cancels[0], lifeline[1], on_frame, on_violation, spec.memory
    )


def _popen(
    spec: ChildSpec, control_fd: int, cancel_fd: int, lifeline_fd: int, log_fd: int
) -> "subprocess.Popen[bytes]":
    flags = ["-I", "-u", "-X", "faulthandler"]
    arguments = [str(MAIN), str(control_fd), str(cancel_fd), str(lifeline_fd), str(spec.entry)]
    with _small_stacks():
        return subprocess.Popen(
            [spec.interpreter or sys.executable, *flags, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log_fd,
            stderr=log_fd,
            pass_fds=(control_fd, cancel_fd, lifeline_fd, *spec.inherited_fds),
            start_new_session=True,
            env=dict(spec.environment),
            cwd=spec.entry.parent,
        )


@contextlib.contextmanager
def _small_stacks() -> Iterator[None]:
    """Have the threads of what is started meanwhile ask for little stack.

    Their default is this limit as it is when a process starts, and all of it counts against a slice although next to
    nothing is touched: with 16 threads for each of two sessions the demo would need 240 MiB for stacks. The child takes
    the limit back for its main thread and its helpers (child/main.py).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    small = STACK_BYTES if soft == resource.RLIM_INFINITY else min(soft, STACK_BYTES)
    resource.setrlimit(resource.RLIMIT_STACK, (small, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
