"""The memory of a child on a `cpu` or `sim` device: a slice that the kernel enforces, and the real peak.

RLIMIT_DATA counts private writable memory, so numpy, torch and onnxruntime allocations really fail above the
slice; what the interpreter and the libraries took before `arm` is not charged. Linux only: elsewhere nothing
is limited and the peak is unknown. Does not see memory of the author's helper processes.
"""

import contextlib
import re
import resource
import sys
from pathlib import Path

SUPPORTED = sys.platform == "linux"
_STATUS = re.compile(rb"^(VmHWM|VmRSS|VmData):\s+(\d+) kB", re.MULTILINE)


class ProcessMemory:
    """Limits and measures one process from outside; a process that is gone has no memory and no errors."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._base_bytes = 0
        self._resident_bytes = 0

    def arm(self) -> None:
        """Take what the process has now as its base."""
        figures = _figures(self._pid)
        self._base_bytes = figures.get(b"VmData", 0)
        self._resident_bytes = figures.get(b"VmRSS", 0)

    def limit(self, slice_bytes: int) -> None:
        """Let the process have `slice_bytes` more than at `arm`; above it allocations fail."""
        if not SUPPORTED or not self._base_bytes:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            limits = (self._base_bytes + slice_bytes, resource.RLIM_INFINITY)
            resource.prlimit(self._pid, resource.RLIMIT_DATA, limits)

    def reset_peak(self) -> None:
        if SUPPORTED:
            with contextlib.suppress(OSError):
                Path(f"/proc/{self._pid}/clear_refs").write_bytes(b"5")

    def peak_bytes(self) -> int | None:
        """Return the most memory above the base since `reset_peak`, or None where it cannot be known."""
        peak = _figures(self._pid).get(b"VmHWM")
        return None if peak is None else max(0, peak - self._resident_bytes)


def oom_kills() -> int:
    """Return how often the kernel's OOM killer has struck on this host; 0 where it is not told."""
    try:
        text = Path("/proc/vmstat").read_bytes()
    except OSError:
        return 0
    match = re.search(rb"^oom_kill (\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0


def _figures(pid: int) -> dict[bytes, int]:
    try:
        text = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return {}
    return {name: int(kib) << 10 for name, kib in _STATUS.findall(text)}
