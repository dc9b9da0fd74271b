"""The memory of a child on a `cpu` or `sim` device: a slice that the kernel enforces, and the real peak.

RLIMIT_DATA counts private writable memory, so numpy, torch and onnxruntime allocations really fail above the
slice; what the interpreter and the libraries took before `arm` is not charged. Linux only: elsewhere nothing
is limited and the peak is unknown. Does not see memory of the author's helper processes.
"""

import contextlib
import os
import re
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from services.gpu_worker.process.stillness import Doing

SUPPORTED = sys.platform == "linux"
_FIGURE = re.compile(rb"(VmRSS|VmData):\s+(\d+) kB")
# in one go, between two jobs
_MEASURED = re.compile(rb"VmHWM:\s+(\d+) kB.*?VmRSS:\s+(\d+) kB.*?VmData:\s+(\d+) kB", re.DOTALL)


class Measured(NamedTuple):
    """Bytes of a process above its base."""

    used_bytes: int | None
    peak_bytes: int | None


class ProcessMemory:
    """Limits and measures one process from outside; a process that is gone has no memory and no errors.

    The two files of /proc stay open: they are read and written between two jobs, where each 0.1 ms counts.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._base_bytes = 0
        self._resident_bytes = 0
        self._limit_bytes: int | None = None  # of what it has in all
        self._status_fd = _open(f"/proc/{pid}/status", os.O_RDONLY)
        self._reset_fd = _open(f"/proc/{pid}/clear_refs", os.O_WRONLY)

    def arm(self) -> None:
        """Take what the process has now as its base."""
        figures = dict(_FIGURE.findall(self._status()))
        self._base_bytes = int(figures.get(b"VmData", 0)) << 10
        self._resident_bytes = int(figures.get(b"VmRSS", 0)) << 10

    def let_go(self, data_bytes: int, resident_bytes: int) -> None:
        """Lower the base by what the process has let go of it: else that would hide what it has taken since."""
        self._base_bytes = max(0, self._base_bytes - data_bytes)
        self._resident_bytes = max(0, self._resident_bytes - resident_bytes)

    def limit(self, slice_bytes: int) -> None:
        """Let the process have `slice_bytes` more than at `arm`; above it allocations fail."""
        if not SUPPORTED or not self._base_bytes:
            return
        self._limit_bytes = self._base_bytes + slice_bytes
        with contextlib.suppress(ProcessLookupError, PermissionError):
            limits = (self._limit_bytes, resource.RLIM_INFINITY)
            resource.prlimit(self._pid, resource.RLIMIT_DATA, limits)

    def limit_files(self, file_bytes: int) -> None:
        """Let the process write no file larger than this from now on."""
        if SUPPORTED:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    def reset_peak(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._reset_fd, b"5")

    def measure(self, allocator: Mapping[str, int] | None = None) -> Measured:
        """Return what it has and the most it had since `reset_peak`, None where it cannot be known.

        The kernel keeps the peak of what was touched, its limit counts what was asked for, too (the stacks of threads):
        what is untouched now is added to the peak, so that whoever is given the peak as a slice can run in it.

        Args:
            allocator: what the child tells of its own; the kernel knows better here.
        """
        found = _MEASURED.search(self._status())
        if found is None or not self._base_bytes:
            return Measured(None, None)
        peak_bytes, touched_bytes, used_bytes = (int(figure) << 10 for figure in found.groups())
        used_bytes = max(0, used_bytes - self._base_bytes)
        untouched_bytes = max(0, used_bytes - (touched_bytes - self._resident_bytes))
        return Measured(used_bytes, max(0, peak_bytes - self._resident_bytes) + untouched_bytes)

    def doing(self) -> Doing | None:
        """Return what it is doing, None where it has no limit or cannot be seen."""
        found = _FIGURE.findall(self._status())
        try:
            told = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        if self._limit_bytes is None or not found:
            return None
        cpu_s = (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")
        return Doing(cpu_s, told[0] == "S", self._limit_bytes - (int(dict(found)[b"VmData"]) << 10))

    def close(self) -> None:
        for fd in (self._status_fd, self._reset_fd):
            if fd >= 0:
                os.close(fd)
        self._status_fd = self._reset_fd = -1

    def _status(self) -> bytes:
        try:
            return os.pread(self._status_fd, 4096, 0)
        except OSError:
            return b""


def _open(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except OSError:  # not Linux, or not ours to look at
        return -1


def oom_kills() -> int:
    """Return how often the kernel's OOM killer has struck on this host; 0 where it is not told."""
    try:
        text = Path("/proc/vmstat").read_bytes()
    except OSError:
        return 0
    match = re.search(rb"^oom_kill (\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0
