"""The supervisor: claims devices, opens the store, and lives one registration after another until it is stopped."""

import asyncio
import os
import random
import time
from collections.abc import Mapping, Sequence

import structlog

from contracts.artifacts import Shelf
from contracts.ids import mint_worker_id
from contracts.models import ModelRegistry
from contracts.store import Store
from contracts.waiting import wait
from services.gpu_worker.artifacts import Intake
from services.gpu_worker.bringing import Bringing
from services.gpu_worker.comparing import Comparing
from services.gpu_worker.config import WorkerConfig
from services.gpu_worker.deck import Shop
from services.gpu_worker.devices import Device, DevicesBusy, claim_devices, release_devices
from services.gpu_worker.finish import Desk
from services.gpu_worker.gpus.finding import Gpus
from services.gpu_worker.input_files import InputFiles
from services.gpu_worker.pins import ModelPins
from services.gpu_worker.process.child_process import child_environment
from services.gpu_worker.profile_news import ProfileNews
from services.gpu_worker.profile_watch import ProfileWatch
from services.gpu_worker.profiles import Profiles
from services.gpu_worker.removal import remove_tree
from services.gpu_worker.residency.device_memory import DeviceMemory
from services.gpu_worker.session import Ending, Session
from services.gpu_worker.slots.slot import Slot
from services.gpu_worker.takeover import take_over
from services.gpu_worker.writer import GaveUp, until_answered

BUSY_POLL_S = 0.5  # a GPU that another supervisor has is looked at so often
log = structlog.get_logger()


class Supervisor:
    """One per host and pool. `environ` is where children's few inherited variables come from."""

    def __init__(
        self, store: Store, config: WorkerConfig, models: ModelRegistry, environ: Mapping[str, str], shelf: Shelf,
        gpus: Gpus | None = None,
    ) -> None:  # fmt: skip
        self._gpus = gpus  # whom to ask about them, if there are any
        self._store, self._config, self._models, self._environ, self._shelf = store, config, models, environ, shelf
        self.session: Session | None = None
        self._watch, self._pins = ProfileWatch(), ModelPins(models)
        self._comparing = Comparing(shelf)

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> bool:
        """Work until `stop`; `hurry` ends the drain early. Returns whether all was settled. Raises DeviceError."""
        config = self._config
        devices = await self._claim(stop)
        if not devices:
            return True
        self._sweep(devices)
        memories = [self._memory(device) for device in devices]
        slots = [Slot(memory) for memory in memories for _ in range(config.slots)]
        news = ProfileNews(self._models, devices, self._watch)
        await news.weigh()
        following = asyncio.create_task(news.follow(stop), name="profiles")
        pinning = asyncio.create_task(self._pins.look(), name="pins")
        try:
            return await self._register_until_stopped(devices, slots, news, stop, hurry)
        finally:
            following.cancel()
            pinning.cancel()
            await asyncio.gather(*(memory.close() for memory in memories))
            release_devices(devices)

    async def _claim(self, stop: asyncio.Event) -> Sequence[Device]:
        """Lock our devices; GPUs that another supervisor has are waited for until `stop`. Raises DeviceError."""
        config, said = self._config, ""
        while not stop.is_set():
            try:
                host = config.host
                return await asyncio.to_thread(claim_devices, config.devices, host.name, host.lock_dir, self._gpus)
            except DevicesBusy as busy:
                if str(busy) != said:
                    log.error(
                        "gpu_busy", detail=str(busy), hint="one supervisor a GPU; this one takes no jobs until then"
                    )
                said = str(busy)
            await wait(stop, BUSY_POLL_S)
        return ()

    def _memory(self, device: Device) -> DeviceMemory:
        config = self._config
        return DeviceMemory(
            device,
            config.bounds,
            self._environment,
            reserve_bytes=config.reserve_bytes(device.kind),
            max_models=config.max_models,
            free_bytes=device.gauge.free_bytes if device.gauge is not None else lambda: None,
        )

    async def _register_until_stopped(
        self, devices: Sequence[Device], slots: Sequence[Slot], news: ProfileNews, stop: asyncio.Event,
        hurry: asyncio.Event,
    ) -> bool:  # fmt: skip
        config = self._config
        try:
            await self._open(stop)
            await take_over(self._store, config.pool, config.host, devices, 3 * config.lease_s, stop)
            while True:
                shop = self._shop(devices, [slot.memory for slot in slots], news)
                self.session = Session(self._store, config, slots, shop)
                ending = await self.session.run(stop, hurry)
                if ending is Ending.DRAINED:
                    return not shop.desk.over.is_set()
                if ending is Ending.CALLED_BACK:
                    continue
                if stop.is_set():
                    return False
        except GaveUp:  # stopped before the store was there
            return True

    async def _open(self, stop: asyncio.Event) -> None:
        async def call() -> None:
            await self._store.directory.open()
            await self._store.open_pool(self._config.pool)

        await until_answered(call, call, stop)

    def _shop(self, devices: Sequence[Device], of_slots: Sequence[DeviceMemory], news: ProfileNews) -> Shop:
        """Make what the lanes of the next registration share, under a new worker id."""
        config, data_dir = self._config, self._config.data_dir
        worker_id = mint_worker_id(int(time.time() * 1000), random.getrandbits(80))
        scratch_dir = data_dir / "scratch" / devices[0].name / worker_id
        desk = Desk(
            jobs=self._store.jobs,
            intake=Intake(self._shelf, scratch_dir / "taken"),
            backoff=config.backoff,
            scratch_bytes=config.scratch_bytes,
            log_dir=data_dir / "logs" / "jobs",
            profiles=Profiles(self._watch, self._store.attempts, config.pool, worker_id, of_slots),
            pins=self._pins,
            comparing=self._comparing,
            draining=asyncio.Event(),
            over=asyncio.Event(),
        )
        return Shop(
            worker_id=worker_id,
            pool=config.pool,
            attempts=self._store.attempts,
            live=self._store.live,
            models=self._models,
            desk=desk,
            bringing=Bringing(InputFiles(self._shelf, config.input_limits)),
            scratch_dir=scratch_dir,
            artifacts_s=config.artifacts_s,
            news=news,
            handled=set(),
            cancels=set(),
        )

    def _environment(self, model: Mapping[str, str]) -> dict[str, str]:
        return child_environment(self._environ, model, self._config.threads, limits_memory=True)

    def _sweep(self, devices: Sequence[Device]) -> None:
        """Remove what a killed predecessor on these devices left; their locks are ours, so nobody uses it."""
        for device in devices:
            remove_tree(self._config.data_dir / "scratch" / device.name)
        os.makedirs(self._config.data_dir, exist_ok=True)
