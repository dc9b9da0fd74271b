"""File locks that the kernel frees: flock on files that are never removed.

Each function opens its own description of the file, so a lock taken here never collides with another one of
the same process. Descriptors are not inherited unless passed on by name.
"""

import os
import sys
from pathlib import Path

if sys.platform != "win32":  # there `ensure` refuses with a sentence, which an ImportError would hide
    import fcntl


def take_shared(path: Path) -> int | None:
    """A descriptor that holds the lock shared, or None while somebody holds it exclusively."""
    return _take(path, fcntl.LOCK_SH)


def take_exclusive(path: Path) -> int | None:
    """A descriptor that holds the lock exclusively, or None while anybody holds it."""
    return _take(path, fcntl.LOCK_EX)


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock exclusively. A look: the answer may be old when it arrives."""
    lock_fd = take_shared(path)
    if lock_fd is None:
        return False
    os.close(lock_fd)
    return True


def is_same_file(lock_fd: int, path: Path) -> bool:
    """Whether the descriptor still belongs to the file at this path."""
    try:
        return os.path.samestat(os.fstat(lock_fd), path.stat())
    except OSError:
        return False


def _take(path: Path, mode: int) -> int | None:
    lock_fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock_fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock_fd)
        return None
    except BaseException:
        os.close(lock_fd)
        raise
    return lock_fd
