"""Locks of devices among the supervisors of one host: files that the kernel unlocks when their last holder is gone."""

import fcntl
import os
import time
from pathlib import Path

DYING_S, POLL_S = 3.0, 0.02


def lock(path: Path) -> int | None:
    """Take a lock and write our pid into it; None if it is taken.

    If its last owner is dead, children of that supervisor still hold it and are about to die: their name is worth a
    short wait, as whoever has it may take over at once.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except PermissionError:  # another user's
        return None
    ends_s = time.monotonic() + DYING_S
    while not _try_lock(fd):
        if _owner_lives(fd) or time.monotonic() > ends_s:
            os.close(fd)
            return None
        time.sleep(POLL_S)
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


def is_held(path: Path) -> bool:
    """Tell whether somebody holds a lock; another user's counts as held."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def owner(path: Path) -> str:
    """Return the process that wrote itself into a lock, as far as it can be read."""
    try:
        return path.read_text() or "unknown"
    except OSError:
        return "of another user"


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner_lives(fd: int) -> bool:
    try:
        os.kill(int(os.pread(fd, 20, 0) or b"0"), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True
