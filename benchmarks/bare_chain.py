"""The baseline's worker as a process beside the benchmark, and the stamps that it prints."""

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

from benchmarks.processes import ROOT, STOP_LIMIT_S

LIMIT_S = 30.0


class Stamps:
    """The lines of a pipe, each awaited for LIMIT_S at most. Keeps its own buffer: `select` sees only the kernel's."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._fd = pipe.fileno()
        self._buffer = b""

    def next(self) -> dict[str, int]:
        """Return the next line. Raises TimeoutError, EOFError."""
        while b"\n" not in self._buffer:
            if not select.select([self._fd], [], [], LIMIT_S)[0]:
                raise TimeoutError(f"no stamp in {LIMIT_S:.0f} s")
            data = os.read(self._fd, 65536)
            if not data:
                raise EOFError("the baseline's worker has ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        stamp: dict[str, int] = json.loads(line)
        return stamp


@contextlib.contextmanager
def bare_chain(store_url: str, slots: int) -> Iterator[Stamps]:
    """Run the baseline's worker; yields its stamps once it listens."""
    command = [sys.executable, "-m", "benchmarks.bare_worker", store_url, str(slots)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        stamps = Stamps(process.stdout)
        stamps.next()
        yield stamps
    finally:
        process.terminate()
        process.wait(STOP_LIMIT_S)
        process.stdout.close()
