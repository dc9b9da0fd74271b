"""Own one store server: restart it when it dies, stop it when its last user is gone.

Run by path as `python -S -I supervisor.py HOME SOCKET BINARY FSYNC SERVER_LOCK_FD`, so it is standard library
only and imports nothing of ours. Its standard output is the store's log.

Promises: while it lives the server lives; when it dies, however, the server is asked to stop at once (by the
kernel on Linux, by a guard process elsewhere), so no server outlives its supervisor unseen; the next
`ensure()` starts both again. After five quick deaths in a row it says so in the log and exits with `GAVE_UP`.
Does not talk to the server: a server that hangs is left alone.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

if sys.platform != "win32":  # imported there too, for its constants
    import fcntl

GAVE_UP = 3
QUICK_DEATHS_LIMIT = 5
QUICK_DEATH_S = 5.0
USERS_POLL_S = 0.25
STOP_LIMIT_S = 60.0
_FIRST_DELAY_S = 0.1
_PR_SET_PDEATHSIG = 1
_ON_LINUX = sys.platform.startswith("linux")


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run and where; the order is that of the command line."""

    home: str
    socket: str
    binary: str
    fsync: str
    server_lock_fd: int


def main(argv: list[str]) -> int:
    """Run until the last user is gone, a signal asks for the end, or the server keeps dying."""
    launch = Launch(argv[0], argv[1], argv[2], argv[3], int(argv[4]))
    os.umask(0o077)
    # All names below are relative: the directory may be renamed under us, and another be made where it was, with a
    # socket of the same name that must not be taken away when our server ends.
    os.chdir(launch.home)
    lock = os.open("supervisor.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # users only ever hold it for the moment of a look
    users = os.open("users.lock", os.O_RDWR | os.O_CREAT, 0o600)
    _sweep(Path())
    wake = Wake()
    quick_deaths = 0
    while not wake.stop_asked:
        started = time.monotonic()
        server = _start(launch)
        with _guard(server):
            status = _watch(server, users, wake)
            if status is None:
                _stop(server)
                break
        quick_deaths = quick_deaths + 1 if time.monotonic() - started < QUICK_DEATH_S else 0
        _say(f"server {server.pid} ended with {status}, {quick_deaths} quick deaths in a row")
        if quick_deaths >= QUICK_DEATHS_LIMIT:
            _say(f"gave up after {quick_deaths} quick deaths in a row; the reason stands above")
            return GAVE_UP
        wake.wait(0)  # eats the news of this very death, which would end the next wait at once
        # the first death is repaired without delay, a server that cannot live is not hammered
        wake.wait(0 if quick_deaths <= 1 else _FIRST_DELAY_S * 2**quick_deaths)
    _unlink(launch.socket)
    return 0


def command(launch: Launch) -> list[str]:
    """The server's command line: unix socket only, every write in the append-only file, nothing evicted."""
    options = {
        "--port": "0",
        "--unixsocket": launch.socket,
        "--unixsocketperm": "700",
        "--dir": ".",
        "--save": "",
        "--appendonly": "yes",
        "--appendfsync": launch.fsync,
        "--aof-load-truncated": "yes",
        "--maxmemory-policy": "noeviction",
        "--daemonize": "no",
    }
    return [launch.binary, *(word for option in options.items() for word in option)]


class Wake:
    """Sleep that a child's death or a request to stop ends at once."""

    def __init__(self) -> None:
        self.stop_asked = False
        self._read_fd, write_fd = os.pipe()
        for fd in (self._read_fd, write_fd):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask_stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def wait(self, limit_s: float) -> None:
        """Return after `limit_s`, or earlier when a signal came."""
        if select.select([self._read_fd], [], [], limit_s)[0]:
            os.read(self._read_fd, 4096)

    def _ask_stop(self, *_: object) -> None:
        self.stop_asked = True


def _start(launch: Launch) -> subprocess.Popen[bytes]:
    _unlink(launch.socket)  # nobody listens there: we hold server.lock
    return subprocess.Popen(
        command(launch),
        pass_fds=(launch.server_lock_fd,),
        stdin=subprocess.DEVNULL,
        preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509 - this process has one thread
    )


def _watch(server: subprocess.Popen[bytes], users: int, wake: Wake) -> int | None:
    """The server's exit status when it died by itself; None when it is to be stopped."""
    while (status := server.poll()) is None:
        if wake.stop_asked or _nobody_left(users):
            return None
        wake.wait(USERS_POLL_S)
    return status


def _nobody_left(users: int) -> bool:
    """True once no user is left; from then on we hold the lock, so that a newcomer waits for our end."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()  # the server flushes and syncs its file before it exits
    try:
        server.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        _say(f"server {server.pid} ignored SIGTERM for {STOP_LIMIT_S:.0f} s; killing it")
        server.kill()
        server.wait(STOP_LIMIT_S)


def _die_with(parent: int) -> Callable[[], None] | None:
    """What the server runs before exec on Linux: the kernel sends it SIGTERM when this process dies."""
    if not _ON_LINUX:
        return None
    libc = ctypes.CDLL(None)

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # we died between fork and prctl: no signal will ever come
            os._exit(1)

    return before_exec


@contextlib.contextmanager
def _guard(
    server: subprocess.Popen[bytes], *, needed: bool = not _ON_LINUX
) -> Iterator["subprocess.Popen[bytes] | None"]:
    """Where the kernel sends no parent-death signal, a shell waits for the end of our pipe and sends it."""
    if not needed:
        yield None
        return
    read_fd, write_fd = os.pipe()
    script = ["/bin/sh", "-c", 'trap "" HUP INT; read -r _; kill -TERM "$0"', str(server.pid)]
    guard = subprocess.Popen(script, stdin=read_fd)
    os.close(read_fd)
    try:
        yield guard
    finally:
        guard.kill()  # before the pipe closes, or it would signal a pid that may be somebody else's by now
        guard.wait()
        os.close(write_fd)


def _sweep(home: Path) -> None:
    """Remove what a killed rewrite left; the server never does, and a few of these fill a disk."""
    for pattern in ("temp-*.aof", "temp-*.rdb", "appendonlydir/temp-*"):
        for leftover in home.glob(pattern):
            _unlink(str(leftover))


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _say(text: str) -> None:
    print(f"{os.getpid()}:supervisor {time.strftime('%d %b %Y %H:%M:%S')} # {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
