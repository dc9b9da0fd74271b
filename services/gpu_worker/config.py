"""What one supervisor is configured with, taken from the settings and from what the host is. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from contracts.errors import ConfigError
from contracts.retry import Backoff
from contracts.settings import Settings, WorkerSettings
from services.gpu_worker.devices import DeviceError, DeviceSpec, parse_devices
from services.gpu_worker.gpus.facts import Found
from services.gpu_worker.input_files import InputLimits
from services.gpu_worker.process.bounds import Bounds


@dataclass(frozen=True, slots=True)
class Host:
    """Facts about this machine."""

    name: str
    boot_id: str  # another one after each boot: locks and processes of an older boot are gone
    memory_bytes: int
    cores: int
    pid: int
    lock_dir: Path  # one for all supervisors of the host
    found: Found = Found()  # its GPUs


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Everything a supervisor needs to know before it opens the store."""

    host: Host
    pool: str
    data_dir: Path
    devices: tuple[DeviceSpec, ...]
    slots: int  # of each device: so many jobs share its memory
    reserve_bytes: Callable[[str], int]  # of a device of this kind, for its driver and other programs
    max_models: int  # that may be resident on one device
    heartbeat_s: float
    lease_s: float
    drain_s: float
    settle_s: float  # after the drain: time for the last words before the store
    scratch_bytes: int  # of the files that one attempt may hand over
    artifacts_s: float  # for which stored files are kept
    input_limits: InputLimits
    bounds: Bounds
    backoff: Backoff

    @property
    def threads(self) -> int:
        """How many threads one child may use: idle OpenMP threads on busy cores cost ten times the run time."""
        return max(1, self.host.cores // (len(self.devices) * self.slots))


def reserve_bytes(worker: WorkerSettings, kind: str) -> int:
    """Return what is left to others on a device: nothing where its memory is this host's, which limits each child."""
    return 0 if kind in ("cpu", "sim") else worker.reserve_mib << 20


def worker_config(settings: Settings, host: Host) -> WorkerConfig:
    """Read the worker's part of the settings. Raises ConfigError."""
    worker = settings.worker
    try:
        devices = parse_devices(worker.devices, host.memory_bytes, host.found)
    except DeviceError as error:
        raise ConfigError([f"HEADRACE_WORKER__DEVICES: {error}"]) from None
    return WorkerConfig(
        host=host,
        pool=worker.pool,
        data_dir=settings.data_dir.absolute(),
        devices=devices,
        slots=worker.slots,
        reserve_bytes=partial(reserve_bytes, worker),
        max_models=max(worker.max_models, worker.slots),  # each slot has a child while it runs, also of one model
        heartbeat_s=worker.heartbeat_s,
        lease_s=worker.lease_s,
        drain_s=worker.drain_s,
        settle_s=5.0,
        scratch_bytes=worker.scratch_bytes,
        artifacts_s=settings.retention.artifacts_s,
        input_limits=InputLimits(
            file_bytes=settings.inputs.file_bytes,
            all_bytes=worker.scratch_bytes,
            picture_pixels=settings.inputs.picture_pixels,
            timeout_s=settings.inputs.timeout_s,
            allow_private=settings.inputs.allow_private,
            route=settings.webhook.route,
        ),
        bounds=Bounds(
            cancel_grace_s=worker.cancel_grace_s,
            term_grace_s=worker.term_grace_s,
            result_bytes=worker.result_bytes,
            scratch_bytes=worker.scratch_bytes,
        ),
        backoff=Backoff(round(settings.retry.base_s * 1000), round(settings.retry.cap_s * 1000)),
    )
