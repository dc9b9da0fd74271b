"""What the profiles of our models are worth on our devices, at the beginning and whenever an audit has written one.

Promises: a new profile counts for what jobs are judged by, and is told to the pool, a few seconds after it was written,
without a restart. What runs meanwhile is not touched.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence

import orjson
import structlog

from contracts.model_spec import ModelRegistry, ModelSpec
from contracts.profile_folder import follow
from contracts.profiles import unlike
from services.gpu_worker.devices import Device
from services.gpu_worker.machine import device_key, installed, machine_of
from services.gpu_worker.profile_watch import ProfileWatch

log = structlog.get_logger()


class ProfileNews:
    """See the module. `text` is what the pool is told: JSON, empty where there is no profile."""

    def __init__(self, models: ModelRegistry, devices: Sequence[Device], watch: ProfileWatch) -> None:
        self.text = ""
        self._models, self._devices, self._watch = models, devices, watch

    async def weigh(self) -> None:
        """Compare the profiles with this machine; takes a moment where a model has its own interpreter."""
        told = await asyncio.to_thread(fits, self._models, self._devices)
        self.text = orjson.dumps(told).decode() if told else ""

    async def follow(self, stop: asyncio.Event) -> None:
        """Look for new ones until `stop`."""
        await follow(self._models, stop, self._renew)

    async def _renew(self, changed: Collection[str]) -> None:
        for reference in changed:
            self._watch.forget(reference)
        await self.weigh()


def fits(models: ModelRegistry, devices: Sequence[Device]) -> dict[str, list[dict[str, object]]]:
    """Return for each profiled model what its profile is worth on these devices; says aloud what it is not."""
    return {spec.reference: list(_fits(spec, models, devices)) for spec in models if spec.profile is not None}


def _fits(spec: ModelSpec, models: ModelRegistry, devices: Sequence[Device]) -> Iterable[dict[str, object]]:
    versions = installed(spec.interpreter)
    for device in {device_key(device): device for device in devices}.values():
        here = machine_of(device, spec, models.base, versions)
        measured = spec.profile.nearest(here.device) if spec.profile else ()
        faults = unlike(measured[0], here) if measured else (f"not measured on {here.kind}",)
        if faults:
            log.warning("profile_unlike", model=spec.reference, device=here.device, unlike=faults)
        yield {"device": here.device, "unlike": faults}
