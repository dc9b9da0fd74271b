"""The devices of this host that a supervisor offers: parsing of the operator's words, and their claims.

`gpu`, `cuda:0`, `cuda:<UUID>`, `rocm:0`, `cpu*4`, `sim:24GiB*2`, several joined by commas. A GPU is named by its UUID,
and whoever holds the lock of that UUID has it to himself. A cpu or sim device is named kind-host-ordinal-index, where
the ordinal is the lowest free lock of that kind on this host: two supervisors never use one name. A name is free again
as soon as nobody holds its lock - the supervisor and every child it left behind.
"""

import contextlib
import os
import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from services.gpu_worker.device_locks import lock, owner
from services.gpu_worker.gpus.facts import Found, Gpu, is_named
from services.gpu_worker.gpus.gauge import Driver, Gauge

GPU_KINDS = ("cuda", "rocm")
_TERM = re.compile(r"(?P<kind>[a-z]+)(?::(?P<what>[^*,]+))?(?:\*(?P<count>\d+))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(KiB|MiB|GiB|TiB|)")
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_WORDS = "write gpu, cuda:0, cuda:<UUID>, cpu, cpu*2, sim:24GiB or sim:24GiB*4, joined by commas"
MAX_DEVICES = 64
MAX_ORDINALS = 256
MIN_SIM_BYTES = 16 << 20  # an interpreter with a model of nothing needs some
SETTLE_S, POLL_S = 0.2, 0.02


class DeviceError(ValueError):
    """The device specification cannot be used; the text says what to write."""


class DevicesBusy(DeviceError):
    """GPUs that were asked for are held by other supervisors of this host."""


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One device as asked for."""

    kind: str  # cpu, sim, cuda or rocm
    bytes_total: int
    gpu: Gpu | None = None
    is_wanted: bool = True  # by name; else it is one of all that are free


@dataclass(frozen=True, slots=True)
class Device:
    """One device as held; children inherit `lock_fd`, so that the name outlives a killed supervisor."""

    name: str
    kind: str
    index: int  # among the devices that a child of it sees: a GPU is the only one
    bytes_total: int
    lock_fd: int
    lock_inode: int
    model: str = ""
    driver: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)  # of its children; a model has no say in these
    gauge: Gauge | None = None  # of a GPU

    @property
    def is_gpu(self) -> bool:
        """Whether its memory is apart from this host's."""
        return self.kind in GPU_KINDS

    def describe(self) -> dict[str, object]:
        """Return what the store keeps of it; the inode tells a later supervisor that it holds the same lock."""
        told = {"model": self.model, "driver": self.driver}
        return {
            "uuid": self.name,
            "kind": self.kind,
            "bytesTotal": self.bytes_total,
            "lockInode": self.lock_inode,
            **{name: value for name, value in told.items() if value},
        }


def parse_devices(text: str, host_bytes: int, found: Found = Found()) -> tuple[DeviceSpec, ...]:  # noqa: B008 - frozen
    """Return the devices in `text`, in order; empty: all GPUs, else one CPU. Raises DeviceError.

    Args:
        host_bytes: memory of this host; CPU devices divide it evenly.
        found: the GPUs of this host.

    >>> parse_devices("sim:1.5GiB*2", host_bytes=0)[1].bytes_total
    1610612736
    """
    if not text.strip():
        text = "gpu" if found.gpus else "cpu"
    specs = [spec for term in text.split(",") for spec in _parse_term(term.strip(), found)]
    if len(specs) > MAX_DEVICES:
        raise DeviceError(f"{len(specs)} devices; a supervisor takes at most {MAX_DEVICES}")
    uuids = [spec.gpu.uuid for spec in specs if spec.gpu is not None]
    if len(uuids) != len(set(uuids)):
        raise DeviceError(f"devices {text!r}: a GPU is named twice, write each once")
    share_bytes = host_bytes // max(1, sum(spec.kind == "cpu" for spec in specs))
    return tuple(DeviceSpec("cpu", share_bytes) if spec.kind == "cpu" else spec for spec in specs)


def divide(specs: Sequence[DeviceSpec], workers: int) -> tuple[str, ...] | None:
    """Return what each of several supervisors is to be given so that no GPU is asked for twice; None without GPUs.

    >>> gpus = [DeviceSpec("cuda", 1, Gpu("cuda", n, f"GPU-{n}", "NVIDIA L4", "570", 1)) for n in range(3)]
    >>> divide(gpus, 2), divide([DeviceSpec("cpu", 1)], 2)
    (('cuda:GPU-0,cuda:GPU-2', 'cuda:GPU-1'), None)
    """
    gpus = [f"{spec.kind}:{spec.gpu.uuid}" for spec in specs if spec.gpu is not None]
    if not gpus:
        return None
    if len(gpus) < workers:
        raise DeviceError(f"{workers} workers for {len(gpus)} GPUs: a GPU has one worker, start at most {len(gpus)}")
    others = ["cpu" if spec.kind == "cpu" else f"sim:{spec.bytes_total}" for spec in specs if spec.gpu is None]
    return tuple(",".join([*gpus[number::workers], *others]) for number in range(workers))


def _parse_term(term: str, found: Found) -> list[DeviceSpec]:
    match = _TERM.fullmatch(term)
    if match is None or match["kind"] not in ("cpu", "sim", "gpu", *GPU_KINDS):
        raise DeviceError(f"device {term!r}: {_WORDS}")
    if match["kind"] in ("gpu", *GPU_KINDS):
        return _parse_gpu(term, match, found)
    count = int(match["count"] or 1)
    if count < 1:
        raise DeviceError(f"device {term!r}: the count must be 1 or more")
    if (match["kind"] == "sim") is not (match["what"] is not None):
        raise DeviceError(f"device {term!r}: sim takes a size, as in sim:24GiB, and cpu takes none")
    size_bytes = _parse_size(match["what"]) if match["what"] else 0
    return [DeviceSpec(match["kind"], size_bytes) for _ in range(min(count, MAX_DEVICES + 1))]


def _parse_gpu(term: str, match: re.Match[str], found: Found) -> list[DeviceSpec]:
    kinds = GPU_KINDS if match["kind"] == "gpu" else (match["kind"],)
    there = [gpu for gpu in found.gpus if gpu.kind in kinds]
    named = [gpu for gpu in there if match["what"] is None or is_named(gpu, match["what"])]
    if match["count"] is not None or (match["kind"] == "gpu" and match["what"] is not None):
        raise DeviceError(f"device {term!r}: {_WORDS}")
    if not named:
        known = ", ".join(f"{gpu.kind}:{gpu.index} {gpu.uuid}" for gpu in there) or "; ".join(found.why_not)
        raise DeviceError(f"device {term!r}: there is no such GPU here ({known or 'none was looked for'}); {_WORDS}")
    if match["what"] is not None and len(named) > 1:
        raise DeviceError(f"device {term!r}: several GPUs begin so, write more of the UUID")
    return [DeviceSpec(gpu.kind, gpu.bytes_total, gpu, match["what"] is not None) for gpu in named]


def _parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size_bytes = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size_bytes < MIN_SIM_BYTES:
        raise DeviceError(f"size {text!r}: write a number with KiB, MiB, GiB or TiB, at least 16MiB")
    return size_bytes


def claim_devices(
    specs: Sequence[DeviceSpec], host: str, lock_dir: Path, driver: Driver | None = None
) -> tuple[Device, ...]:
    """Lock what `specs` ask for and name the devices; `driver` tells of GPUs. Raises DeviceError, DevicesBusy.

    Of GPUs that nobody named those are left out that others hold, unless nothing is left then.
    """
    lock_dir.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError):  # made by another user, who has done this
        lock_dir.chmod(0o1777)
    gpus = list(_claim_gpus([spec for spec in specs if spec.gpu is not None], lock_dir, len(specs)))
    kinds = sorted({spec.kind for spec in specs if spec.gpu is None})
    locks = {kind: _lowest_free(f"{kind}-{host}", lock_dir) for kind in kinds}
    others = list(_number_devices([spec for spec in specs if spec.gpu is None], locks, host))
    gauged = (replace(gpu, gauge=Gauge(driver, gpu.name)) if driver is not None else gpu for gpu in gpus)
    return (*gauged, *others)


def unheld(spec: DeviceSpec) -> Device:
    """Return a device only to be looked at: nobody holds it."""
    if spec.gpu is None:
        return Device(spec.kind, spec.kind, 0, spec.bytes_total, -1, 0, platform.machine())
    return Device(spec.gpu.uuid, spec.kind, 0, spec.bytes_total, -1, 0, spec.gpu.model, spec.gpu.driver)


def release_devices(devices: Iterable[Device]) -> None:
    """Let the locks go; what a child still holds stays locked."""
    for fd in {device.lock_fd for device in devices}:
        os.close(fd)


def _claim_gpus(specs: Sequence[DeviceSpec], lock_dir: Path, devices: int) -> Iterator[Device]:
    paths = {spec.gpu.uuid: lock_dir / f"{spec.gpu.uuid}.lock" for spec in specs if spec.gpu is not None}
    held, ends_s = dict[str, int](), time.monotonic() + SETTLE_S
    while True:
        taken = {uuid: lock(path) for uuid, path in paths.items() if uuid not in held}
        held |= {uuid: fd for uuid, fd in taken.items() if fd is not None}
        if len(held) == len(paths) or time.monotonic() > ends_s:  # one that leaves lets go of one after another
            break
        time.sleep(POLL_S)
    missing = [spec for spec in specs if spec.gpu is not None and spec.gpu.uuid not in held]
    if any(spec.is_wanted for spec in missing) or len(missing) == devices > 0:
        for fd in held.values():
            os.close(fd)
        told = (f"{spec.gpu.uuid} (held by process {owner(paths[spec.gpu.uuid])})" for spec in missing if spec.gpu)
        raise DevicesBusy(", ".join(told))
    for spec in specs:
        if spec.gpu is not None and spec.gpu.uuid in held:
            yield _as_held(spec.gpu, held[spec.gpu.uuid])


def _as_held(gpu: Gpu, fd: int) -> Device:
    only = {
        "cuda": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu.uuid},
        "rocm": {"HIP_VISIBLE_DEVICES": str(gpu.index)},
    }
    return Device(
        gpu.uuid, gpu.kind, 0, gpu.bytes_total, fd, os.fstat(fd).st_ino, gpu.model, gpu.driver, only[gpu.kind]
    )


def _number_devices(specs: Sequence[DeviceSpec], locks: dict[str, tuple[int, int]], host: str) -> Iterator[Device]:
    counts = dict.fromkeys(locks, 0)
    for spec in specs:
        (ordinal, fd), index = locks[spec.kind], counts[spec.kind]
        counts[spec.kind] += 1
        name = f"{spec.kind}-{host}-{ordinal}-{index}"
        # No GPU is in sight of its children: what is not reserved there must not be used.
        hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
        inode = os.fstat(fd).st_ino
        yield Device(name, spec.kind, index, spec.bytes_total, fd, inode, platform.machine(), environment=hidden)


def _lowest_free(stem: str, lock_dir: Path) -> tuple[int, int]:
    for ordinal in range(MAX_ORDINALS):
        fd = lock(lock_dir / f"{stem}-{ordinal}.lock")
        if fd is not None:
            return ordinal, fd
    raise DeviceError(f"all {MAX_ORDINALS} ordinals of {stem} in {lock_dir} are locked")
