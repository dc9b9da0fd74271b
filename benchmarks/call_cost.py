"""What one call of the function library costs: its round trip, and the server's CPU time, one at a time and batched.

Against one XADD of the same bytes by the same client. One at a time is what an idle system waits for; 64 together is
what a busy one pays, because each process keeps one pipeline in flight.
"""

import time
from collections.abc import Sequence

import uvloop

from benchmarks.calls import Call, Script
from benchmarks.figures import Row, cut_up
from benchmarks.payload import payload
from benchmarks.rig import own_store
from contracts.store import Store

CALLS = 640
TOGETHER = 64
STREAM = "bench:raw"


def measure() -> list[Row]:
    """One row: all verbs on the way of a job."""
    with own_store() as (url, _):
        return uvloop.run(_measure(url))


async def _measure(url: str) -> list[Row]:
    store = Store(url)
    await store.directory.open()
    await store.open_pool("default")
    script = await Script.prepare(store, 2 * CALLS)

    async def bare(_: Sequence[int]) -> object:
        return await store.client.xadd(STREAM, {"d": payload()})

    bare_us = await _cost(store, bare, range(CALLS), 1)
    texts = []
    for name, call in script.steps():
        alone = await _cost(store, call, range(CALLS), 1)
        together = await _cost(store, call, range(CALLS, 2 * CALLS), TOGETHER)
        texts.append(f"{name} {alone[0]:.0f} / {together[0]:.0f} / {together[1]:.0f}")
    await store.aclose()
    return [
        Row(
            f"one call of the library, microseconds: alone / {TOGETHER} together / of the server's CPU",
            ", ".join(texts), f"{cut_up(bare_us[0], 0)} bare XADD alone",
        )
    ]  # fmt: skip


async def _cost(store: Store, call: Call, numbers: Sequence[int], together: int) -> tuple[float, float]:
    """Return (wall, server) microseconds per call."""
    before = await _server_us(store)
    begun_s = time.perf_counter()
    for first in range(0, len(numbers), together):
        await call(numbers[first : first + together])
    seconds = time.perf_counter() - begun_s
    return seconds / len(numbers) * 1e6, (await _server_us(store) - before) / len(numbers)


async def _server_us(store: Store) -> int:
    stats = await store.client.info("commandstats")
    return int(stats.get("cmdstat_fcall", {}).get("usec", 0))
