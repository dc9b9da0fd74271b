"""Profiles that an audit writes while a process runs: found by looking at the folder now and then.

Promises: a profile that is new, replaced or gone is taken over by the registry whole; a file that is no profile changes
nothing, and is told once. Looking costs one call of the system for each model. Does not watch anything else of
pipelines.toml: that needs a restart.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import NamedTuple

import structlog

from contracts.model_spec import ModelRegistry, ModelSpec
from contracts.models import profile_file, read_profile, reader
from contracts.profiles import ModelProfiles
from contracts.waiting import wait

LOOK_S = 2.0
log = structlog.get_logger()
Stamp = tuple[int, int, int] | None  # None: there is no such file


class Found(NamedTuple):
    """What a look has found."""

    changed: dict[str, ModelProfiles | None]  # by `name@version`
    faults: tuple[str, ...]


class ProfileFolder:
    """The profiles of one registry. `look` touches the disk, `take` does not; so one thread may look for another."""

    def __init__(self, models: ModelRegistry) -> None:
        self._models, self._read = models, reader(models.base)
        self._seen: dict[str, Stamp] = {}  # nothing at first: what was written since the registry was read is news

    def look(self) -> Found:
        """Return what is not as the registry has it."""
        changed: dict[str, ModelProfiles | None] = {}
        faults = []
        for spec in self._models:
            stamp = _stamp(self._models.base / profile_file(spec.reference))
            if self._seen.get(spec.reference) != stamp:
                self._seen[spec.reference] = stamp
                fault = self._compare(spec, changed)
                faults += [fault] if fault else []
        return Found(changed, tuple(faults))

    def take(self, found: Found) -> None:
        """Let the registry have what was found."""
        for reference, profile in found.changed.items():
            self._models.put_profile(reference, profile)

    def _compare(self, spec: ModelSpec, changed: dict[str, ModelProfiles | None]) -> str:
        try:
            profile = read_profile(spec.reference, self._read)
        except ValueError as fault:
            return str(fault)
        if profile != spec.profile:
            changed[spec.reference] = profile
        return ""


async def follow(
    models: ModelRegistry, stop: asyncio.Event, then: Callable[[Collection[str]], Awaitable[None]] | None = None
) -> None:  # fmt: skip
    """Keep the registry's profiles as they are in the folder until `stop`; `then` is given what has changed."""
    folder = ProfileFolder(models)
    while not stop.is_set():
        found = await asyncio.to_thread(folder.look)
        for fault in found.faults:
            log.error("profile_unreadable", detail=fault)
        if found.changed:
            folder.take(found)
            log.info("profiles_renewed", models=sorted(found.changed))
            if then is not None:
                await then(found.changed)
        await wait(stop, LOOK_S)


def _stamp(path: Path) -> Stamp:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino
