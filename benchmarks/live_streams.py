"""Streams of many jobs from one ingest process: from the append of an event to its arrival at the client.

`python -m benchmarks.live_streams [CLIENTS] [SECONDS]` prints JSON: 2,000 clients, each on its own job, 200 events a
second; ours and a bare loop on the same store, one after the other, with the same clients. The time begins before the
call that appends. `reads` are the store's own count of XREAD while events came, whoever asked.
"""

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import uvloop

from benchmarks.figures import Row, cut_up
from benchmarks.processes import cpu_s, running
from benchmarks.rig import POOL, TENANT, ingest_alone, own_store
from contracts import events as ev
from contracts import ids
from contracts.store import Store, keys
from contracts.store.jobs import Limits
from contracts.store.write import Write

RATE = 200
CLIENTS, SECONDS = 2_000, 4.0
BAR_MS, BAR_READS = 50, 1.2
MARK = b"priority_changed"
_ROOM = {"HEADRACE_INGEST__CONNECTIONS": "4096", "HEADRACE_INGEST__KEY_STREAMS": "4096"}


@dataclass
class Load:
    """What came of one side."""

    sent_s: dict[str, float] = field(default_factory=dict)
    took_s: list[float] = field(default_factory=list)


class Client(asyncio.Protocol):
    """One connection to the stream of one job."""

    def __init__(self, job_id: str, request: bytes, load: Load) -> None:
        self._job_id, self._request, self._load = job_id, request, load
        self.ready = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self._request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not self.ready.done() and (b"snapshot" in data or b": ready" in data):
            self.ready.set_result(None)
        if MARK in data and (sent_s := self._load.sent_s.pop(self._job_id, None)) is not None:
            self._load.took_s.append(time.monotonic() - sent_s)


async def one_side(store: Store, port: int, requests: dict[str, bytes], seconds: float) -> dict[str, float]:
    """Open all streams, append for a while, return the figures."""
    load, loop = Load(), asyncio.get_running_loop()
    clients = []
    for job_id, request in requests.items():
        _, client = await loop.create_connection(partial(Client, job_id, request, load), "127.0.0.1", port)
        await asyncio.wait_for(client.ready, 30)
        clients.append(client)
    before = await _reads(store)
    begun_s, count = time.monotonic(), int(seconds * RATE)
    jobs, calls = list(requests), set()
    for number in range(count):
        await asyncio.sleep(max(0.0, begun_s + number / RATE - time.monotonic()))
        call = asyncio.create_task(_append(store, jobs[number % len(jobs)], number, load))
        calls.add(call)
        call.add_done_callback(calls.discard)
    await asyncio.sleep(1)
    reads = await _reads(store) - before
    for client in clients:
        client.transport.abort()  # type: ignore[attr-defined]
    took = sorted(load.took_s)
    return {
        "events": count, "arrived": len(took), "p50_ms": took[len(took) // 2] * 1e3,
        "p99_ms": took[int(len(took) * 0.99)] * 1e3, "max_ms": took[-1] * 1e3, "reads": reads,
    }  # fmt: skip


async def _append(store: Store, job_id: str, number: int, load: Load) -> None:
    bands: tuple[ev.Priority, ev.Priority] = ("low", "normal")
    event = ev.JobPriorityChanged(priority=bands[number % 2], previous=bands[1 - number % 2])
    load.sent_s[job_id] = time.monotonic()
    await store.jobs.append(POOL, Write(job_id, (event,)), f"bench{number}{time.monotonic_ns()}")


async def _reads(store: Store) -> int:
    return int((await store.client.info("commandstats"))["cmdstat_xread"]["calls"])


async def _jobs(store: Store, count: int) -> Sequence[str]:
    code = await store.directory.pool(POOL)
    made = [ids.mint_job_id(time.time_ns() // 1_000_000, number, code) for number in range(count)]
    created = ev.JobCreated(tenant_id=TENANT, model="noop@1", timeout_ms=1_000, body_bytes=2)
    limits = Limits(tenant_jobs=1_000_000)
    for start in range(0, count, 200):
        part = made[start : start + 200]
        await asyncio.gather(
            *(store.jobs.admit(POOL, Write(job_id, (created,)), b"{}", TENANT, limits) for job_id in part)
        )
    return made


async def run(
    url: str, port: int, key: str, pid: int, clients: int, seconds: float, bare: int, bare_pid: int
) -> dict[str, dict[str, float]]:
    """Measure both sides."""
    store = Store(url)
    await store.directory.open()
    jobs = await _jobs(store, clients)
    head = f"HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
    ours = {job_id: f"GET /v1/jobs/{job_id}/stream {head}".encode() for job_id in jobs}
    theirs = {job_id: f"{job_id}\n".encode() for job_id in jobs}
    told = {}
    for name, to, requests, of in (("ours", port, ours, pid), ("bare", bare, theirs, bare_pid)):
        used_s = cpu_s(of) or 0.0
        told[name] = await one_side(store, to, requests, seconds)
        told[name]["cpu_s"] = (cpu_s(of) or 0.0) - used_s
    await store.aclose()
    return told


def measure() -> list[Row]:
    """Compare both sides at the size of the claim."""
    told = both(CLIENTS, SECONDS)
    ours, bare = told["ours"], told["bare"]
    own_reads = max(1, ours["reads"] - bare["reads"])  # the bare loop reads all the time
    what = f"{CLIENTS:,} live streams of one process, each of its own job, {RATE} events a second"
    is_whole = ours["arrived"] == ours["events"]
    return [
        Row(
            f"{what}: append to socket, p99",
            f"{cut_up(ours['p99_ms'])} ms", f"{cut_up(bare['p99_ms'])} ms XREAD, socket",
            cut_up(ours["p99_ms"] / bare["p99_ms"]), f"at most {BAR_MS} ms", is_whole and ours["p99_ms"] <= BAR_MS,
        ),
        Row(
            "the same: reads of the store while they came", f"{own_reads:,.0f}", f"{bare['reads']:,.0f} one reader",
            cut_up(own_reads / bare["reads"]), f"at most {BAR_READS} of one reader's",
            own_reads <= BAR_READS * bare["reads"],
        ),
    ]  # fmt: skip


def both(clients: int, seconds: float) -> dict[str, dict[str, float]]:
    """Start what is measured, and measure it."""
    os.environ.update(_ROOM)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with (
        own_store() as (url, data_dir),
        ingest_alone(url, data_dir) as target,
        running("-m", "benchmarks.bare_stream", url, keys.log(POOL)) as (bare, bare_pid),
    ):
        ours = (target.port, target.key, target.pids["ingest"][0])
        return uvloop.run(run(url, *ours, clients, seconds, bare["port"], bare_pid))


def main(clients: int = 2_000, seconds: float = 10.0) -> None:
    """Print both sides."""
    print(json.dumps({"clients": clients, "rate": RATE, **both(clients, seconds)}, indent=1))


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:]))
