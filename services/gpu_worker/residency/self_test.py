"""Whether a device has what it is said to have: everything leaves, and a fresh child takes most of it."""

from pathlib import Path

import structlog

from contracts.model_inputs import compile_schema
from contracts.model_spec import ModelSpec
from services.gpu_worker.process.child_process import cannot_start
from services.gpu_worker.residency.device_memory import OWN, DeviceMemory, Refusal
from services.gpu_worker.residency.ledger import Want

ENTRY = Path(__file__).parents[1] / "child" / "self_test.py"
WHOLE_PERCENT = 90  # of what is for models: a child that got so much had the device
SELF_TEST = ModelSpec(
    name=OWN + "self-test", version="1", entry=ENTRY, inputs=ENTRY, schema=compile_schema(b'{"type": "object"}'),
    pools=(), vram_mib=None, max_batch=1, timeout_s=60.0, silence_s=None, interpreter="", env={}, resources={},
)  # fmt: skip
log = structlog.get_logger()


async def passes(memory: DeviceMemory) -> bool:
    """Run the test; waits until nothing else runs on the device. What runs there afterwards has to load anew."""
    async with memory.testing:
        await memory.empty()
        try:
            refusal = await memory.load_model(Want(SELF_TEST, 0, alone=True))
        except OSError as error:
            refusal = Refusal(cannot_start(SELF_TEST.interpreter, error), final=False)
        await memory.empty()
    if refusal is not None:
        log.warning("device_failed_test", device=memory.device.name, detail=refusal.reason)
    return refusal is None


def was_whole(memory: DeviceMemory, slice_bytes: int) -> bool:
    """Tell whether a child with this slice had the device for itself: nothing pinned, nothing of other programs."""
    ledger = memory.ledger
    return slice_bytes * 100 >= (ledger.total_bytes - ledger.reserve_bytes) * WHOLE_PERCENT
