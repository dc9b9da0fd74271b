"""What a new supervisor does about those that held its devices before.

Whoever got a device's lock knows that its former holder, and every child that inherited the lock, is dead. If the store
names the same boot of the same host and the same lock file, that worker is told lost at once instead of after a lease.
If only the name of the device is the same, the old worker may be alive elsewhere: wait until the scheduler gives it up.
A GPU's name is its own all over the world: who registered it and still beats is using it, from another container say.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import structlog

from contracts import events as ev
from contracts.ids import mint_token
from contracts.store import Store
from contracts.store.replies import Reply
from services.gpu_worker.config import Host
from services.gpu_worker.devices import Device
from services.gpu_worker.writer import until_answered

POLL_S = 0.2
log = structlog.get_logger()


async def take_over(
    store: Store, pool: str, host: Host, devices: Sequence[Device], patience_s: float, over: asyncio.Event
) -> None:
    """Return when no other worker of the pool can be using these devices, or after `patience_s` if none is a GPU.

    Raises GaveUp.
    """
    ends_s, told = asyncio.get_running_loop().time() + patience_s, False
    while True:
        workers = await until_answered(lambda: store.workers(pool), lambda: store.workers(pool), over)
        rivals = {worker_id: fields for worker_id, fields in workers.items() if uses(fields, devices)}
        for worker_id, fields in rivals.items():
            if is_dead(fields, host, devices):
                await _tell_lost(store, pool, worker_id, over)
        alive = [worker_id for worker_id, fields in rivals.items() if not is_dead(fields, host, devices)]
        if not alive or over.is_set():
            return
        if asyncio.get_running_loop().time() > ends_s and not any(device.is_gpu for device in devices):
            log.warning("device_name_in_use", workers=alive)
            return
        if any(device.is_gpu for device in devices) and not told:
            log.error("gpu_busy", detail=f"{', '.join(alive)} of this pool has it and cannot be asked for its lock")
            told = True
        await asyncio.sleep(POLL_S)


def uses(fields: Mapping[str, str], devices: Sequence[Device]) -> bool:
    """Tell whether a registered worker names one of these devices."""
    names = {device.name for device in devices}
    return any(theirs["uuid"] in names for theirs in _devices_of(fields))


def is_dead(fields: Mapping[str, str], host: Host, devices: Sequence[Device]) -> bool:
    """Tell whether holding our locks proves that this worker is gone."""
    inodes = {device.name: device.lock_inode for device in devices}
    same_locks = all(
        inodes[theirs["uuid"]] == theirs.get("lockInode") for theirs in _devices_of(fields) if theirs["uuid"] in inodes
    )
    same_boot = bool(host.boot_id) and fields.get("boot") == host.boot_id and fields.get("host") == host.name
    return same_boot and same_locks


def _devices_of(fields: Mapping[str, str]) -> list[dict[str, Any]]:
    try:
        devices = orjson.loads(fields.get("devices", "[]"))
    except ValueError:
        return []
    return [device for device in devices if isinstance(device, dict) and "uuid" in device]


async def _tell_lost(store: Store, pool: str, worker_id: str, over: asyncio.Event) -> None:
    write_id = mint_token(random.getrandbits(80))

    async def call() -> Reply:
        event = ev.WorkerLost(worker_id=worker_id, silent_ms=0)
        return await store.attempts.announce(pool, worker_id, event, write_id, "gone")

    reply = await until_answered(call, call, over)
    log.info("worker_taken_over", worker=worker_id, word=reply.word)
