"""What of this machine the memory of a model depends on: device, driver, runtimes, the model's own files.

Promises: two machines with the same answer need no padding. A file of the model is told by its content, a large one
(weights) by name and size only, so that nobody waits for gigabytes to be read.
"""

import contextlib
import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import orjson

from contracts.model_spec import ModelSpec
from contracts.profiles import Machine
from services.gpu_worker.devices import Device

RUNTIMES = ("torch", "onnxruntime", "onnxruntime-gpu", "tensorflow", "jax", "diffusers")
READ_BYTES = 1 << 20  # of a file: a larger one is told by its size
MOST_FILES = 10_000
_ASK = """
import importlib.metadata, json, platform, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
if "python" in sys.argv:
    found["python"] = platform.python_version()
print(json.dumps(found))
"""
_ASK_S = 20.0


def machine_of(device: Device, spec: ModelSpec, base: Path, runtimes: Mapping[str, str]) -> Machine:
    """Return what a profile of the model on this device depends on. `base` is the folder of pipelines.toml."""
    return Machine(
        kind=kind_of(device),
        name=_name_of(device),
        driver=device.driver,
        runtimes=dict(runtimes),
        revision=revision_of(spec, base),
    )


def device_key(device: Device) -> str:
    """Return what profiles of this kind of device are looked up by."""
    return f"{kind_of(device)}/{_name_of(device)}"  # as `Machine.device` writes it


def _name_of(device: Device) -> str:
    return device.model or platform.machine()


def kind_of(device: Device) -> str:
    """Return the kind that profiles know: a simulated device is a CPU whose memory is limited."""
    return "cpu" if device.kind == "sim" else device.kind


def installed(interpreter: str, names: Sequence[str] = RUNTIMES) -> dict[str, str]:
    """Return the versions of these that a model's interpreter has; empty where it cannot be asked.

    `python` among the names is the interpreter's own.
    """
    if not interpreter:
        found = {"python": platform.python_version()} if "python" in names else {}
        for name in names:
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(name)
        return found
    command = [interpreter, "-I", "-c", _ASK, *names]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        told = subprocess.run(command, capture_output=True, timeout=_ASK_S, check=True).stdout
        return {str(name): str(version) for name, version in orjson.loads(told).items()}
    return {}


def in_use(pid: int | None, runtimes: Mapping[str, str]) -> dict[str, str]:
    """Return those runtimes whose libraries a process has loaded; all of them where that cannot be seen."""
    if pid is None:
        return {}
    if sys.platform != "linux":
        return dict(runtimes)
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return dict(runtimes)
    return {name: version for name, version in runtimes.items() if f"/{name.partition('-')[0]}/" in maps}


def files_of(spec: ModelSpec, base: Path) -> list[Path]:
    """Return the model's files: those of its folder, or the two that are named if that is everybody's."""
    folder = spec.entry.parent
    return sorted([spec.entry, spec.inputs] if folder == base else _files(folder))


def revision_of(spec: ModelSpec, base: Path) -> str:
    """Return a digest of the model's files."""
    folder = spec.entry.parent
    digest = hashlib.sha256()
    for path in files_of(spec, base):
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            content = hashlib.sha256(path.read_bytes()).hexdigest() if size <= READ_BYTES else ""
            digest.update(f"{os.path.relpath(path, folder)}\0{size}\0{content}\n".encode())
    return digest.hexdigest()[:16]


def _files(folder: Path) -> Iterator[Path]:
    left = MOST_FILES
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        for name in sorted(names):
            if not name.startswith(".") and left > 0:
                left -= 1
                yield Path(place, name)
