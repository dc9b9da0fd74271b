"""`headrace doctor`: look at everything a stack on this machine depends on.

Promises to change nothing that lasts; a store that does not run is started for the moment of the check, in the data
directory when there is one, so that a file that cannot be read is found; one that runs is looked at and left running.
"""

import asyncio
import os
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from contracts.artifacts import INCOMING, StoreAway, open_objects
from contracts.errors import ConfigError, HeadraceError
from contracts.settings import Settings, load_settings
from contracts.store.clients import as_store_error, check_url, command_client
from headrace.command import Output
from headrace.exits import Exit
from headrace.output import Format, note, show_list
from headrace.store_server import ensure, filesystem, release
from headrace.store_server.binary import OLDEST
from services.gpu_worker.device_locks import is_held, owner
from services.gpu_worker.devices import DeviceError, DeviceSpec, parse_devices
from services.gpu_worker.gpus.finding import Gpus
from services.gpu_worker.gpus.rocm import DRIVER as AMD_DRIVER
from services.gpu_worker.this_host import this_host

Verdict = Literal["ok", "warning", "failed"]

LOW_DISK_BYTES = 2 * 1024**3
FULL_DISK_BYTES = 200 * 1024**2
CLOCK_SKEW_LIMIT_S = 1.0
STORE_STOP_S = 10.0
NVIDIA_DRIVER = Path("/dev/nvidiactl")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, and what to do about it when it is not well."""

    check: str
    verdict: Verdict
    detail: str


def doctor(
    data_dir: Annotated[
        Path | None, typer.Option(help="The data directory to look at.", show_default="./.headrace")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Check store, persistence, eviction, files, devices, disk and clock; exit code 1 when a check failed."""
    try:
        settings = load_settings(os.environ)
        if settings.redis.url:
            check_url(settings.redis.url)
    except ConfigError as fault:
        note(f"error: {fault}")
        raise typer.Exit(Exit.USAGE) from None
    directory = (data_dir or settings.data_dir).expanduser()
    checks = [
        *_check_store(settings, directory), *_check_files(settings), *_check_devices(settings), *_check_disk(directory),
    ]  # fmt: skip
    page = {"data": [asdict(check) for check in checks], "hasMore": False}
    show_list(page, ("check", "verdict", "detail"), output)
    if any(check.verdict == "failed" for check in checks):
        raise typer.Exit(Exit.FAILED_CHECK)


def _check_store(settings: Settings, directory: Path) -> list[Check]:
    if settings.redis.url:
        return asyncio.run(_ask_store(settings.redis.url))
    with tempfile.TemporaryDirectory(prefix="headrace-doctor-") as scratch:
        home = directory if directory.exists() else Path(scratch)
        wait_s = STORE_STOP_S
        try:
            store = ensure(home, server=settings.store.server)
            wait_s = STORE_STOP_S if store.started else 0  # one that runs anyway goes on
            return asyncio.run(_ask_store(store.url))
        except HeadraceError as fault:
            return [Check("store", "failed", str(fault))]
        finally:
            release(home, wait_s=wait_s)


async def _ask_store(url: str) -> list[Check]:
    client = command_client(url)
    try:
        info = await client.info()
        before_s = time.time()
        seconds, microseconds = await client.time()
        round_trip_s = time.time() - before_s
        skew_s = seconds + microseconds / 1e6 - before_s - round_trip_s / 2
    except Exception as fault:
        return [Check("store", "failed", str(as_store_error(fault)))]
    finally:
        await client.aclose()
    facts = {str(name): str(value) for name, value in info.items()}
    return [judge_version(facts), judge_persistence(facts), judge_eviction(facts), judge_clock(skew_s)]


def judge_version(info: dict[str, str]) -> Check:
    """The server's own name and number; Valkey also tells an old Redis number, for old clients."""
    kind = "valkey" if "valkey_version" in info else "redis"
    number = info.get(f"{kind}_version", "0")
    oldest = OLDEST[kind][:2]
    parts = tuple(int(part) for part in number.split(".")[:2] if part.isdigit())
    needed = ".".join(map(str, oldest))
    if parts < oldest:
        return Check("store version", "failed", f"{kind} {number}: {kind} >= {needed} is needed")
    return Check("store version", "ok", f"{kind} {number}")


def judge_persistence(info: dict[str, str]) -> Check:
    """Whether what was accepted survives a restart of the store."""
    if info.get("aof_enabled") != "1":
        return Check("persistence", "failed", "appendonly is off: accepted jobs are gone when the store restarts")
    if info.get("aof_last_write_status", "ok") != "ok":
        return Check("persistence", "failed", "the last write of the append-only file failed: look at the disk")
    delayed = int(info.get("aof_delayed_fsync", "0"))
    if delayed:
        return Check("persistence", "warning", f"{delayed} delayed fsyncs: the disk is too slow, a crash may lose jobs")
    return Check("persistence", "ok", "appendonly on")


def judge_eviction(info: dict[str, str]) -> Check:
    """Whether a full store would throw jobs away."""
    policy = info.get("maxmemory_policy", "unknown")
    if policy == "noeviction":
        return Check("eviction policy", "ok", policy)
    if policy == "unknown":
        return Check("eviction policy", "warning", "cannot be read: make sure that it is noeviction")
    return Check("eviction policy", "failed", f"{policy}: a full store would drop jobs, set noeviction")


def judge_clock(skew_s: float) -> Check:
    """How far this host's clock is from the store's."""
    text = f"{skew_s * 1000:+.0f} ms from the store's"
    if abs(skew_s) > CLOCK_SKEW_LIMIT_S:
        return Check("clock", "warning", f"{text}: set up time synchronisation")
    return Check("clock", "ok", text)


def judge_disk(free_bytes: int, directory: Path) -> Check:
    """Whether there is room for the log and the artifacts."""
    text = f"{free_bytes / 1024**3:.1f} GiB free at {directory}"
    if free_bytes < FULL_DISK_BYTES:
        return Check("disk", "failed", f"{text}: the store is about to stop writing")
    return Check("disk", "warning" if free_bytes < LOW_DISK_BYTES else "ok", text)


def _check_disk(directory: Path) -> list[Check]:
    existing = next(folder for folder in (directory.absolute(), *directory.absolute().parents) if folder.exists())
    disk = judge_disk(shutil.disk_usage(existing).free, existing)
    return [disk, *(Check("file system", "warning", text) for text in filesystem.warnings_for(existing))]


def _check_files(settings: Settings) -> list[Check]:
    """Whether a file can be stored, read, listed and removed; the default place is a matter of the disk."""
    if not settings.artifacts.url:
        return []
    key = f"{INCOMING}doctor-{os.getpid()}"
    try:
        objects = open_objects(settings)
        objects.put_file(key, b"headrace", "text/plain")
        content = objects.get(key)
        listed = [each.key for each in objects.list(INCOMING)]
        objects.delete(key)
    except ConfigError as fault:
        return [Check("files", "failed", str(fault))]
    except StoreAway as fault:
        return [Check("files", "failed", str(fault.strerror))]
    if content is None or key not in listed:
        return [Check("files", "failed", "what was stored a moment ago is not there")]
    content.close()
    return [Check("files", "ok", "stored, read, listed and removed one")]


def _check_devices(settings: Settings) -> list[Check]:
    """What a worker would offer, who holds it, and why there is no GPU among it."""
    host = this_host(Gpus(os.environ).found)
    try:
        specs = parse_devices(settings.worker.devices, host.memory_bytes, host.found)
    except DeviceError as fault:
        return [Check("devices", "failed", f"HEADRACE_WORKER__DEVICES: {fault}")]
    offered = Check("devices", "ok", ", ".join(_device_text(spec) for spec in specs))
    busy = [path for spec in specs if spec.gpu and (path := host.lock_dir / f"{spec.gpu.uuid}.lock") and is_held(path)]
    held = [Check("gpu lock", "ok", f"{path.stem} is held by process {owner(path)}") for path in busy]
    others = [gpu for gpu in host.found.gpus if gpu.uuid not in {spec.gpu.uuid for spec in specs if spec.gpu}]
    left = [Check("gpu", "warning", f"{gpu.model} {gpu.uuid} is there, but not offered") for gpu in others]
    return [offered, *held, *left, *(Check("gpu", _gravity(text), text) for text in host.found.why_not)]


def _device_text(spec: DeviceSpec) -> str:
    size = f"{spec.bytes_total / 1024**3:.1f} GiB"
    if spec.gpu is None:
        return f"{spec.kind} {size}"
    return f"{spec.kind}:{spec.gpu.index} {spec.gpu.model} {size} {spec.gpu.uuid} (driver {spec.gpu.driver})"


def _gravity(why_not: str) -> Verdict:
    """A host without a driver is no fault; one with a driver that nobody can ask is."""
    has_driver = NVIDIA_DRIVER.exists() if why_not.startswith("cuda") else AMD_DRIVER.exists()
    return "warning" if has_driver else "ok"
