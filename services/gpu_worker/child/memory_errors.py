"""What an exception says of memory and of the device: out of memory, with which figures; or is all lost? Pure.

Told by type and by the texts of Python, numpy, torch (CUDA, HIP, CPU), onnxruntime and the drivers. What no text gives
stays out. Standard library only.
"""

from __future__ import annotations

import re

MOST_BYTES = 1 << 62
OOM_TEXTS = (
    "out of memory",
    "failed to allocate memory",
    "can't allocate memory",
    "cannot allocate memory",
    "unable to allocate",
    "smaller than requested bytes",  # an onnxruntime arena at its limit
    "bad_alloc",
    "bad allocation",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "hipblas_status_alloc_failed",
    "rocblas_status_memory_error",
    "miopenstatusallocfailed",
)
CRASH_TEXTS = (  # every later call of this process fails, too: its context on the device is gone
    "illegal memory access",
    "illegal address",
    "illegal instruction was encountered",
    "misaligned address",
    "invalid program counter",
    "device-side assert",
    "unspecified launch failure",
    "launch timed out and was terminated",
    "memory access fault by gpu",
    "cublas_status_execution_failed",
    "cudnn_status_execution_failed",
)
DEVICE_TEXTS = (  # the device itself is at fault, and the process lost with it
    "uncorrectable ecc error",
    "uncorrectable nvlink error",
    "gpu is lost",
    "fallen off the bus",
    "device is unavailable",
    "devices are busy or unavailable",
    "nvrm: xid",
)
_UNITS = {"": 1, "bytes": 1, "byte": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = r"(?P<n>\d+(?:\.\d*)?) ?(?P<unit>[KMGT]iB|bytes?|)(?!\w)"  # numpy writes "512. MiB"
_PATTERNS = {
    "requested": (
        rf"tried to allocate {_SIZE}",
        rf"unable to allocate {_SIZE} for an array",
        rf"requested buffer of size {_SIZE}",
        rf"smaller than requested bytes of {_SIZE}",
    ),
    "free": (rf"of which {_SIZE} is free", rf"; {_SIZE} free;", rf"available memory of {_SIZE} is smaller"),
    "reserved": (rf"; {_SIZE} (?:reserved in total by pytorch|cached)",),
    "allocated": (rf"of the allocated memory {_SIZE} is allocated by pytorch",),
    "unallocated": (rf"{_SIZE} is reserved by pytorch but unallocated",),
}
_KNOWN = {name: [re.compile(pattern, re.IGNORECASE) for pattern in texts] for name, texts in _PATTERNS.items()}
MOST_CAUSES = 8  # of an exception are looked at; they may form a circle


def is_oom(error: BaseException | None) -> bool:
    """Tell whether a device or this process had no memory left."""
    return any(
        isinstance(one, MemoryError) or type(one).__name__ == "OutOfMemoryError" or _says(one, OOM_TEXTS)
        for one in _causes(error)
    )


def figures(error: BaseException | None) -> dict[str, int]:
    """Return what the texts say in bytes: requested, free (of the device), reserved (by torch's allocator)."""
    for one in _causes(error):
        found = _figures_in(text_of(one))
        if found:
            return found
    return {}


def lost_by(error: BaseException | None) -> str | None:
    """Return why this process is of no use any more: its own crash on the device, or the device; None: it is."""
    causes = _causes(error)
    if any(_says(one, DEVICE_TEXTS) for one in causes):
        return "device_unavailable"
    return "child_crashed" if any(_says(one, CRASH_TEXTS) for one in causes) else None


def text_of(error: object) -> str:
    """Return what it says; an author's error may fail to say anything.

    >>> text_of(ValueError("too large"))
    'too large'
    """
    try:
        return str(error)
    except Exception as failure:
        return f"({type(failure).__name__} in the text of {type(error).__name__})"


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and len(found) < MOST_CAUSES:
        found.append(error)
        error = error.__cause__
    return found


def _says(error: BaseException, texts: tuple[str, ...]) -> bool:
    said = text_of(error).lower()
    return any(text in said for text in texts)


def _figures_in(text: str) -> dict[str, int]:
    found = {name: size for name in _KNOWN if (size := _size(name, text)) is not None}
    parts = [found.pop(name) for name in ("allocated", "unallocated") if name in found]
    return found if not parts or "reserved" in found else {**found, "reserved": sum(parts)}


def _size(name: str, text: str) -> int | None:
    match = next((match for pattern in _KNOWN[name] if (match := pattern.search(text))), None)
    if match is None or len(match["n"]) > 20:
        return None
    return min(MOST_BYTES, round(float(match["n"]) * _UNITS[match["unit"].lower()]))
