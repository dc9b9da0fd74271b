"""What exactly this worker would run: the digest of each model's files and the versions of the code around them.

Promises: every byte of a model's files counts (`machine.revision_of`, which only memory depends on, skips large ones);
files are read again only when they look different, and in a thread. A model is pinned as its files were when it was
loaded last: who changes them under a running worker without a new version pins what others run beside it.
"""

import asyncio
import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import orjson
import structlog

from contracts.events import Manifest
from contracts.model_spec import ModelRegistry, ModelSpec
from services.gpu_worker.devices import Device
from services.gpu_worker.machine import RUNTIMES, device_key, files_of, installed

_CODE = ("python", *RUNTIMES, "numpy", "pillow", "transformers")
_Look = tuple[tuple[str, int, int], ...]  # path, size, time of change
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pinned:
    """One model as it would run here."""

    model_hash: str
    code_version: str


class ModelPins:
    """See the module. `text` is what the pool is told: JSON by model."""

    def __init__(self, models: ModelRegistry) -> None:
        self.text = ""
        self._models = models
        self._found: dict[str, Pinned] = {}
        self._read: dict[str, tuple[_Look, str]] = {}
        self._code: dict[str, str] = {}
        self._turn = asyncio.Lock()

    async def look(self) -> None:
        """Pin all models; takes a while where weights are large."""
        for spec in self._models:
            await self.of(spec)

    async def of(self, spec: ModelSpec, *, was_loaded: bool = False) -> Pinned | None:
        """Return what the model is pinned to; None where its files cannot be read."""
        known = self._found.get(spec.reference)
        if known is not None and not was_loaded:
            return known
        async with self._turn:
            try:
                found = self._found[spec.reference] = await asyncio.to_thread(self._pin, spec)
            except OSError as error:
                log.warning("model_not_pinned", model=spec.reference, detail=error.strerror)
                return None
        self.text = orjson.dumps(
            {name: [one.model_hash, one.code_version] for name, one in self._found.items()}
        ).decode()
        return found

    async def manifest(self, spec: ModelSpec, device: Device, batch_size: int, *, was_loaded: bool) -> Manifest:
        """Return what an attempt that has completed ran with."""
        found = await self.of(spec, was_loaded=was_loaded)
        return Manifest(
            model_hash=found.model_hash if found else None,
            code_version=found.code_version if found else None,
            device=device_key(device),
            batch_size=batch_size,
        )

    def _pin(self, spec: ModelSpec) -> Pinned:
        paths = files_of(spec, self._models.base)
        look = tuple((str(path), (stat := path.stat()).st_size, stat.st_mtime_ns) for path in paths)
        known = self._read.get(spec.reference)
        if known is None or known[0] != look:
            known = self._read[spec.reference] = look, hash_of(spec, paths)
        if spec.interpreter not in self._code:
            self._code[spec.interpreter] = code_version(installed(spec.interpreter, _CODE))
        return Pinned(known[1], self._code[spec.interpreter])


def hash_of(spec: ModelSpec, paths: Sequence[Path]) -> str:
    """Return a digest of the model's files and of how it is started. Raises OSError."""
    started = {"name": spec.reference, "entry": spec.entry.name, "interpreter": spec.interpreter, "env": dict(spec.env)}
    digest = hashlib.sha256(orjson.dumps(started, option=orjson.OPT_SORT_KEYS))
    for path in paths:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{os.path.relpath(path, spec.entry.parent)}\0{content}\n".encode())
    return digest.hexdigest()


def code_version(versions: Mapping[str, str]) -> str:
    """Return Headrace's version and those of what computes, as one text.

    >>> code_version({"python": "3.11.9", "numpy": "2.1.0"}).partition(" ")[2]
    'numpy/2.1.0 python/3.11.9'
    """
    ours = "0"
    with suppress(metadata.PackageNotFoundError):
        ours = metadata.version("headrace")
    return " ".join([f"headrace/{ours}", *(f"{name}/{versions[name]}" for name in sorted(versions))])
