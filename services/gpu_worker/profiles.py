"""What a registration says of profiles: at its beginning what fits its devices, later what jobs took beyond it."""

import asyncio
import random
from collections.abc import Sequence

import structlog

from contracts import events as ev
from contracts.ids import mint_token
from contracts.store.attempts import Attempts
from contracts.store.replies import Reply
from services.gpu_worker.devices import Device
from services.gpu_worker.profile_watch import ProfileWatch, Seen
from services.gpu_worker.residency.device_memory import DeviceMemory
from services.gpu_worker.running import Running
from services.gpu_worker.slots.outcome import Outcome, Verdict
from services.gpu_worker.writer import until_answered

log = structlog.get_logger()


class Profiles:
    """Of one registration; `watch` outlives it."""

    def __init__(
        self, watch: ProfileWatch, attempts: Attempts, pool: str, worker_id: str, memories: Sequence[DeviceMemory]
    ) -> None:  # fmt: skip
        self._watch, self._attempts, self._pool, self._worker_id = watch, attempts, pool, worker_id
        self._memories = memories  # by slot

    def judge(self, running: Running, outcome: Outcome) -> ev.ModelProfiled | None:
        """Return what a run that completed has to tell."""
        asked = running.asked
        if asked is None or outcome.peak_bytes is None or outcome.verdict is not Verdict.COMPLETED:
            return None
        memory, is_fresh = self._memories[running.right.offer.slot], running.load_ms is not None
        after_oom, room_bytes = asked.alone and running.right.attempt > 1, memory.ledger.room_bytes
        peak_bytes, device = outcome.peak_bytes, memory.device
        return self._watch.saw(Seen(asked.model, asked.inputs, peak_bytes, device, room_bytes, is_fresh, after_oom))

    def device(self, running: Running) -> Device:
        """Return where an attempt ran."""
        return self._memories[running.right.offer.slot].device

    async def tell(self, event: ev.ModelProfiled, over: asyncio.Event) -> None:
        """Write it to the log of the pool. Raises GaveUp."""
        write_id = mint_token(random.getrandbits(80))

        async def call() -> Reply:
            return await self._attempts.announce(self._pool, self._worker_id, event, write_id)

        await until_answered(call, call, over)
        log.info("model_profiled", model=event.model, bucket=event.bucket, bytes=event.bytes, source=event.source)
