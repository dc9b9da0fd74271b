"""What an operator asks of this worker: drain, come back, load a model, evict one.

Promises: what cannot be done is told in the log, and nothing that runs is hurt by it. Models are loaded and evicted
beside the jobs; draining is the session's part, which finds here what was asked.
"""

import asyncio
import random
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import structlog

from contracts import events as ev
from contracts.ids import mint_token
from contracts.model_spec import ModelSpec, predict_vram
from contracts.store.attempts import Attempts
from contracts.store.replies import Reply
from services.gpu_worker.deck import Shop
from services.gpu_worker.process.child_process import cannot_start
from services.gpu_worker.residency.device_memory import DeviceMemory
from services.gpu_worker.residency.ledger import Want
from services.gpu_worker.writer import GaveUp, until_answered

log = structlog.get_logger()


class Commands:
    """Obeys the commands in one work stream. `leave` and `back`: it was asked to drain, and to work again."""

    def __init__(self, attempts: Attempts, shop: Shop, memories: Sequence[DeviceMemory]) -> None:
        self.leave, self.back = asyncio.Event(), asyncio.Event()
        self.deadline_s: float | None = None  # of the drain; None: what runs may take its time
        self.deadline_set = asyncio.Event()
        self.reason = ""
        self._attempts, self._shop, self._memories = attempts, shop, memories
        self._tasks: set[asyncio.Task[None]] = set()

    def obey(self, data: Mapping[str, Any]) -> None:
        """Begin to do what a work entry asks. Raises KeyError or ValueError for what is none of ours."""
        match data["command"]:
            case "drain":
                self._drain(data.get("deadlineMs"), str(data.get("reason") or ""))
            case "undrain":
                self.back.set()
            case "load_model":
                self._begin(self._load(data["model"], data.get("device")))
            case "evict_model":
                self._begin(self._evict(data["model"], data.get("device")))
            case other:
                raise ValueError(f"command {other!r}")

    def _drain(self, deadline_ms: int | None, reason: str) -> None:
        self.reason = reason or self.reason
        self.back.clear()
        if deadline_ms is not None:
            self.deadline_s = deadline_ms / 1000
            self.deadline_set.set()
        self.leave.set()

    async def over(self) -> None:
        """Wait until what was begun is done: what was loaded is there by then, and can leave."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _load(self, reference: str, device: str | None) -> None:
        if self._shop.desk.draining.is_set():
            return await self._fail("load_model", reference, "this worker takes nothing new")
        spec = self._shop.models.find(reference)
        if spec is None:
            return await self._fail("load_model", reference, "this worker does not serve this model")
        want = Want(spec, predict_vram(spec, {}).bytes)
        memory = self._roomiest(spec, device)
        if memory is None:
            return await self._fail("load_model", reference, "this worker has no such device")
        try:
            refusal = await memory.load_model(want)
        except OSError as error:
            return await self._fail("load_model", reference, cannot_start(spec.interpreter, error))
        if refusal is not None:
            await self._fail("load_model", reference, refusal.reason)
        return None

    async def _evict(self, reference: str, device: str | None) -> None:
        there = [memory for memory in self._memories if device in (None, memory.device.name)]
        found = [await memory.evict_model(reference) for memory in there]
        log.info("model_evicted", model=reference, devices=sum(found))

    def _roomiest(self, spec: ModelSpec, device: str | None) -> DeviceMemory | None:
        """Return the device to load on: the one named, else one that has the model, else the one with most free."""
        there = [memory for memory in self._memories if device in (None, memory.device.name)]
        return max(there, key=lambda memory: (memory.is_warm(spec), memory.ledger.free_bytes), default=None)

    async def _fail(self, command: ev.WorkerCommand, model: str, message: str) -> None:
        log.warning("command_failed", command=command, model=model, detail=message)
        shop, write_id = self._shop, mint_token(random.getrandbits(80))
        event = ev.WorkerCommandFailed(worker_id=shop.worker_id, command=command, model=model, message=message)

        async def call() -> Reply:
            return await self._attempts.announce(shop.pool, shop.worker_id, event, write_id)

        await until_answered(call, call, shop.desk.over)

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(_to_its_end(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _to_its_end(work: Coroutine[object, object, None]) -> None:
    try:
        await work
    except GaveUp:
        log.warning("command_left_without_a_word")
