"""Attach to the embedded store of a data directory, or start it.

Promises what the package promises; `ensure` is idempotent, may be called from any thread and again after a
lost connection. Every wait ends by the deadline, and every failure names the log and its last lines.
"""

import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import ConfigError, StoreUnavailable
from headrace.store_server import filesystem, locks, probe, supervisor
from headrace.store_server.binary import ServerBinary, find_server
from headrace.store_server.home import Home, last_lines, open_home
from headrace.store_server.socket_path import socket_url

_POLL_S = 0.01
_ORPHAN_GRACE_S = 3.0
"""How long a server may answer without a supervisor before we ask it to stop; it normally stops by itself."""


class StoreNotReady(StoreUnavailable):
    """The store is on its way: it loads its file, or its predecessor still shuts down. Waiting on may help."""


@dataclass(frozen=True, slots=True)
class StoreServer:
    """A running embedded store.

    `lock_fd` is the descriptor that keeps it alive; a child that inherits it keeps the store alive, too.
    `warnings` are sentences an operator should see. `started`: by this process, so it is likely its only user.
    """

    url: str
    pid: int
    lock_fd: int
    warnings: tuple[str, ...] = ()
    started: bool = False


@dataclass(slots=True)
class _Hold:
    lock_fd: int
    starter: "subprocess.Popen[bytes] | None" = None
    started: ServerBinary | None = None


_holds: dict[Path, _Hold] = {}
_one_at_a_time = threading.RLock()


def ensure(
    data_dir: Path, *, server: str | None = None, fsync: str = "everysec", timeout_s: float = 30.0
) -> StoreServer:
    """Attach to the store of `data_dir`, starting it when nobody did; keep it alive until `release` or exit.

    Args:
        server: the only acceptable binary, by path or name; None takes the first suitable one.
        fsync: Redis `appendfsync`: `everysec` or `always`.

    Raises:
        ConfigError: no usable binary, a directory we cannot use, or a running store with weaker `fsync`.
        StoreNotReady: it did not become ready in time; the text holds the log's last lines.
        StoreUnavailable: it cannot be started; likewise.
    """
    if sys.platform == "win32":
        raise ConfigError(["the embedded store needs Linux or macOS: set HEADRACE_REDIS__URL to a running Redis"])
    deadline = time.monotonic() + timeout_s
    home = open_home(data_dir)
    with _one_at_a_time:
        hold = _take_hold(home, deadline)
        state = _wait_ready(home, hold, server, fsync, deadline)
    if fsync == "always" and state.fsync != "always":
        raise ConfigError([f"the store of {data_dir} already runs with appendfsync {state.fsync}, not always"])
    warnings = filesystem.warnings_for(home.directory)
    return StoreServer(socket_url(home.socket), state.pid, hold.lock_fd, warnings, started=hold.starter is not None)


def release(data_dir: Path, *, wait_s: float = 0.0) -> bool:
    """Give up this process's hold; the store stops when it was the last.

    Returns whether the store is gone; waits up to `wait_s` for that. Unknown directories are not held.
    """
    home = open_home(data_dir)
    with _one_at_a_time:
        hold = _holds.pop(home.directory, None)
        if hold:
            os.close(hold.lock_fd)  # never LOCK_UN: a forked child or a service may share this lock
    deadline = time.monotonic() + wait_s
    while not (gone := locks.is_free(home.server_lock)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    if hold and hold.starter:
        hold.starter.poll()
    return gone


def _take_hold(home: Home, deadline: float) -> _Hold:
    """Hold the shared users' lock before anything else: from here on the server may not be stopped."""
    hold = _holds.get(home.directory)
    if hold and locks.is_same_file(hold.lock_fd, home.users_lock):
        return hold
    if hold:  # the directory was removed and made anew: the old lock guards nothing here
        os.close(hold.lock_fd)
    while (lock_fd := locks.take_shared(home.users_lock)) is None:
        if time.monotonic() > deadline:
            raise StoreNotReady(_explain(home, "the last server is still shutting down"))
        time.sleep(_POLL_S)
    _holds[home.directory] = _Hold(lock_fd)
    return _holds[home.directory]


def _wait_ready(home: Home, hold: _Hold, server: str | None, fsync: str, deadline: float) -> probe.ServerState:
    unsupervised_since: float | None = None
    while True:
        # in this order: a server that answers after its supervisor was seen is not one that lost it before
        supervised = not locks.is_free(home.supervisor_lock)
        state = probe.look(home.socket)
        if state and state.ready and supervised:
            if hold.started:  # noted only now: a server that cannot start has written nothing
                home.note_writer(hold.started)
                hold.started = None
            return state
        now = time.monotonic()
        if now > deadline:
            raise StoreNotReady(_explain(home, "it is still loading its file" if state else "it did not start in time"))
        unsupervised_since = (unsupervised_since or now) if state and not supervised else None
        if unsupervised_since and now - unsupervised_since > _ORPHAN_GRACE_S:
            probe.shut_down(home.socket)
            unsupervised_since = None
        if state is None:
            _start_unless_started(home, hold, server, fsync)
        time.sleep(_POLL_S * (1 + random.random()))


def _start_unless_started(home: Home, hold: _Hold, server: str | None, fsync: str) -> None:
    """Become the starter if nobody is; who loses the race polls on."""
    ended = hold.starter.poll() if hold.starter else None
    if ended is not None:
        hold.starter = None
    if ended == supervisor.GAVE_UP:
        raise StoreUnavailable(_explain(home, "the server died again and again"))
    if ended is not None and ended > 0:  # below zero it was killed: that is repaired, not reported
        raise StoreUnavailable(_explain(home, f"its supervisor failed with {ended}"))
    server_lock_fd = locks.take_exclusive(home.server_lock)
    if server_lock_fd is None:
        return
    try:
        binary = find_server(server, written_by=home.read_writer())
        hold.started = binary
        hold.starter = _spawn_supervisor(home, str(binary.path), fsync, server_lock_fd)
    finally:
        os.close(server_lock_fd)


def _spawn_supervisor(home: Home, binary: str, fsync: str, server_lock_fd: int) -> "subprocess.Popen[bytes]":
    socket = home.socket.name if home.socket.parent == home.directory else str(home.socket)
    arguments = [str(home.directory), socket, binary, fsync, str(server_lock_fd)]
    with home.open_log() as log:
        return subprocess.Popen(
            [sys.executable, "-S", "-I", supervisor.__file__, *arguments],
            pass_fds=(server_lock_fd,),
            start_new_session=True,  # Ctrl-C must not stop the store before its users are done
            cwd="/",
            env=_plain_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _plain_environment() -> dict[str, str]:
    """What a server may need of our environment; the rest may hold secrets and stays here."""
    wanted = ("PATH", "TZ", "LANG", "LC_", "LD_", "DYLD_", "MALLOC_")
    return {name: value for name, value in os.environ.items() if name.startswith(wanted)}


def _explain(home: Home, why: str) -> str:
    return f"{why}; last lines of {home.log}:\n{last_lines(home.log)}"
