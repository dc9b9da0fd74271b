"""Remove what author code has left in a directory, whatever it is.

Promises: costs two descriptors and no recursion however deep it is, as each directory is moved up before it is emptied;
follows no link. Does not promise that all is gone: what this process may not remove stays.
"""

import contextlib
import itertools
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove a directory with all below it; of a link that stands in its place, the link."""
    with contextlib.suppress(OSError):
        if path.is_symlink():
            path.unlink()
            return
        root_fd = os.open(path, _FLAGS)
        try:
            _empty(root_fd)
        finally:
            os.close(root_fd)
        path.rmdir()


def _empty(root_fd: int) -> None:
    token = uuid.uuid4().hex  # a name that nothing in there has
    names = (f"{token}.{number}" for number in itertools.count())
    left = _move_up(root_fd, root_fd, names)
    while left:
        name = left.pop()
        with contextlib.suppress(OSError):
            folder_fd = os.open(name, _FLAGS, dir_fd=root_fd)
            try:
                left += _move_up(folder_fd, root_fd, names)
            finally:
                os.close(folder_fd)
            os.rmdir(name, dir_fd=root_fd)


def _move_up(folder_fd: int, root_fd: int, names: Iterator[str]) -> list[str]:
    """Remove the files of a folder and move its directories into the root; returns their names there."""
    moved = []
    with os.scandir(folder_fd) as entries:
        found = list(entries)
    for entry in found:
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                name = next(names)
                os.rename(entry.name, name, src_dir_fd=folder_fd, dst_dir_fd=root_fd)
                moved.append(name)
            else:
                os.unlink(entry.name, dir_fd=folder_fd)
    return moved
