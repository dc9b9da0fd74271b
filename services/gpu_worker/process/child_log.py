"""The job's log: what a child and its helpers write to stdout and stderr, read by chunk and capped.

Promises: the tail is in memory, the head in a bounded file; a flood slows down whoever writes it and never
the supervisor's loop. Does not promise lines: a chunk may end anywhere.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import BinaryIO

TAIL_BYTES = 64 << 10
FILE_LIMIT_BYTES = 1 << 20
CHUNK_BYTES = 64 << 10
#: Read at most this much in each window; then the pipe fills and the writer waits.
WINDOW_BYTES, WINDOW_S = 2 << 20, 0.1
CUT_MARK = b"\n[log cut here: limit reached]\n"


class ChildLog:
    """Reads the pipe of one child for as long as it lives; one attempt after another owns what arrives."""

    def __init__(self, read_fd: int) -> None:
        os.set_blocking(read_fd, False)
        self._fd = read_fd
        self._loop = asyncio.get_running_loop()
        self._tail = bytearray()
        self._path: Path | None = None
        self._file: BinaryIO | None = None
        self.written_bytes = 0  # of the attempt, also what the file has no room for
        self._window_bytes, self._window_ends_s = 0, 0.0
        self._closed = False
        self._loop.add_reader(read_fd, self._on_readable)

    @property
    def tail(self) -> str:
        """The last 64 KiB since `begin`, as text."""
        return self._tail.decode("utf-8", "replace")

    def begin(self, path: Path) -> None:
        """Start the log of the next attempt; the file is made when there is something to write.

        A file of this path that is still there is gone on with: loading and running are one attempt.
        """
        if self._is_writing(path):
            return
        self._end_file()
        self._tail.clear()
        self._path, self.written_bytes = path, 0

    def end(self) -> None:
        """Take what already lies in the pipe and close the attempt's file."""
        for _ in range(TAIL_BYTES // CHUNK_BYTES + 1):  # a pipe holds 64 KiB
            if not self._read_chunk():
                break
        self._end_file()

    def close(self) -> None:
        """Read what the dead left behind and let the pipe go."""
        if self._closed:
            return
        self.end()
        self._closed = True
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _on_readable(self) -> None:
        if not self._read_chunk():
            self._loop.remove_reader(self._fd)  # the last writer is gone
            return
        now_s = self._loop.time()
        if now_s > self._window_ends_s:
            self._window_bytes, self._window_ends_s = 0, now_s + WINDOW_S
        if self._window_bytes > WINDOW_BYTES:
            self._loop.remove_reader(self._fd)
            self._loop.call_at(self._window_ends_s, self._resume)

    def _resume(self) -> None:
        if not self._closed:
            self._window_bytes = 0
            self._loop.add_reader(self._fd, self._on_readable)

    def _read_chunk(self) -> int:
        try:
            chunk = os.read(self._fd, CHUNK_BYTES)
        except (BlockingIOError, OSError):
            return 0
        self._window_bytes += len(chunk)
        self._tail += chunk
        del self._tail[:-TAIL_BYTES]
        self._write(chunk)
        return len(chunk)

    def _write(self, chunk: bytes) -> None:
        room_bytes = FILE_LIMIT_BYTES - self.written_bytes
        if self._path is None or room_bytes <= 0:
            return
        self.written_bytes += len(chunk)
        try:
            if self._file is None:
                self._file = self._path.open("wb", buffering=0)  # whoever follows it reads the file
            self._file.write(chunk[:room_bytes])
            if len(chunk) >= room_bytes:
                self._file.write(CUT_MARK)
        except OSError:  # a full disk costs the log, not the job
            self._path = None

    def _is_writing(self, path: Path) -> bool:
        if self._file is None or self._path != path:
            return False
        try:
            return os.path.samestat(path.stat(), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def _end_file(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._path = self._file = None
