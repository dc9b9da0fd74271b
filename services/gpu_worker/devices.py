"""The devices of this host that a supervisor offers: parsing of the operator's words, and their locks.

`cpu`, `cpu*4`, `sim:24GiB*2`, several joined by commas. A device is named kind-host-ordinal-index, where the
ordinal is the lowest free lock of that kind on this host: two supervisors never use one name, and a name is
free again as soon as nobody holds its lock - the supervisor and every child it left behind. Real GPUs come
with the worker issue.
"""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TERM = re.compile(r"(?P<kind>[a-z]+)(?::(?P<size>[^*,]+))?(?:\*(?P<count>\d+))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(KiB|MiB|GiB|TiB|)")
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
MAX_DEVICES = 64
MAX_ORDINALS = 256
DYING_S, POLL_S = 3.0, 0.02
MIN_SIM_BYTES = 16 << 20  # an interpreter with a model of nothing needs some


class DeviceError(ValueError):
    """The device specification cannot be used; the text says what to write."""


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One device as asked for."""

    kind: str  # cpu or sim
    bytes_total: int


@dataclass(frozen=True, slots=True)
class Device:
    """One device as held; children inherit `lock_fd`, so that the name outlives a killed supervisor."""

    name: str
    kind: str
    index: int
    bytes_total: int
    lock_fd: int
    lock_inode: int

    def describe(self) -> dict[str, object]:
        """Return what the store keeps of it; the inode tells a later supervisor that it holds the same lock."""
        return {"uuid": self.name, "kind": self.kind, "bytesTotal": self.bytes_total, "lockInode": self.lock_inode}


def parse_devices(text: str, host_bytes: int) -> tuple[DeviceSpec, ...]:
    """Return the devices in `text`, in order. Raises DeviceError.

    Args:
        host_bytes: memory of this host; CPU devices divide it evenly.

    >>> parse_devices("sim:1.5GiB*2", host_bytes=0)
    (DeviceSpec(kind='sim', bytes_total=1610612736), DeviceSpec(kind='sim', bytes_total=1610612736))
    """
    terms = [_parse_term(term.strip()) for term in text.split(",")]
    kinds = [(kind, size) for kind, size, count in terms for _ in range(count)]
    if len(kinds) > MAX_DEVICES:
        raise DeviceError(f"{len(kinds)} devices; a supervisor takes at most {MAX_DEVICES}")
    share_bytes = host_bytes // max(1, sum(kind == "cpu" for kind, _ in kinds))
    return tuple(DeviceSpec(kind, share_bytes if kind == "cpu" else size) for kind, size in kinds)


def _parse_term(term: str) -> tuple[str, int, int]:
    match = _TERM.fullmatch(term)
    if match is None or match["kind"] not in ("cpu", "sim"):
        raise DeviceError(f"device {term!r}: write cpu, cpu*2, sim:24GiB or sim:24GiB*4, joined by commas")
    count = int(match["count"] or 1)
    if count < 1:
        raise DeviceError(f"device {term!r}: the count must be 1 or more")
    if (match["kind"] == "sim") is not (match["size"] is not None):
        raise DeviceError(f"device {term!r}: sim takes a size, as in sim:24GiB, and cpu takes none")
    return match["kind"], _parse_size(match["size"]) if match["size"] else 0, count


def _parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size_bytes = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size_bytes < MIN_SIM_BYTES:
        raise DeviceError(f"size {text!r}: write a number with KiB, MiB, GiB or TiB, at least 16MiB")
    return size_bytes


def claim_devices(specs: tuple[DeviceSpec, ...], host: str, lock_dir: Path) -> tuple[Device, ...]:
    """Lock one ordinal for each kind in `specs` and name the devices by it. Raises DeviceError."""
    lock_dir.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError):  # made by another user, who has done this
        lock_dir.chmod(0o1777)
    locks = {kind: _lowest_free(f"{kind}-{host}", lock_dir) for kind in sorted({spec.kind for spec in specs})}
    return tuple(_number_devices(specs, locks, host))


def release_devices(devices: Iterable[Device]) -> None:
    """Let the locks go; what a child still holds stays locked."""
    for fd in {device.lock_fd for device in devices}:
        os.close(fd)


def _number_devices(specs: tuple[DeviceSpec, ...], locks: dict[str, tuple[int, int]], host: str) -> Iterator[Device]:
    counts = dict.fromkeys(locks, 0)
    for spec in specs:
        (ordinal, fd), index = locks[spec.kind], counts[spec.kind]
        counts[spec.kind] += 1
        name = f"{spec.kind}-{host}-{ordinal}-{index}"
        yield Device(name, spec.kind, index, spec.bytes_total, fd, os.fstat(fd).st_ino)


def _lowest_free(stem: str, lock_dir: Path) -> tuple[int, int]:
    for ordinal in range(MAX_ORDINALS):
        fd = _lock(lock_dir / f"{stem}-{ordinal}.lock")
        if fd is not None:
            return ordinal, fd
    raise DeviceError(f"all {MAX_ORDINALS} ordinals of {stem} in {lock_dir} are locked")


def _lock(path: Path) -> int | None:
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
