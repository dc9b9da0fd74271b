"""Memory of the store while 50,000 jobs come and go: retention and idempotency of 20 s, everything else as shipped.

`python -m benchmarks.bounded_memory [JOBS] [JOBS_PER_S]`: real ingest (an Idempotency-Key for each job), scheduler,
notifier and archivist; the workers are calls of the store library, so that the machine's time goes into what is
measured. A tenth of the jobs fails. The rate is steady, as what is kept for 20 s is so much of it. Prints the used
memory by stretches of jobs, and the figure: after the warm-up, how far their means lie from the median of these.
A leader makes a snapshot after 40,000 entries and the log is trimmed behind it, a saw tooth of some 6,000 jobs: a
stretch is longer.
"""

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import redis
import uvloop

from benchmarks.figures import cut_up
from benchmarks.http_load import whole_answer
from benchmarks.leading import Crew
from benchmarks.machine import describe
from benchmarks.payload import payload
from benchmarks.processes import ROOT, end
from benchmarks.rig import POOL, Target, ingest_alone, own_store
from contracts import events as ev
from contracts.store import Store, keys
from contracts.store.attempts import Attempt, Offer

JOBS, STRETCH = 50_000, 10_000
KEPT_S = 20
CONNECTIONS, RATE = 8, 100.0
SAMPLE_S = 0.25
SLOTS = 32
BAR = 0.10
SETTINGS = {
    "HEADRACE_RETENTION__COMPLETED_S": str(KEPT_S), "HEADRACE_RETENTION__FAILED_S": str(KEPT_S),
    "HEADRACE_RETENTION__IDEMPOTENCY_S": str(KEPT_S), "HEADRACE_WORKER__LEASE_S": "3600",
    "HEADRACE_WORKER__HEARTBEAT_S": "1800", "HEADRACE_LOG__LEVEL": "warning",
    "HEADRACE_PIPELINES": str(ROOT / "benchmarks/pipelines/pipelines.toml"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """What the store held when so many jobs were done."""

    jobs: int
    used_bytes: int
    keys: int
    entries: int
    at_s: float


class Worker(Crew):
    """Completes nine of ten."""

    async def _serve(self, position: str, offer: Offer) -> None:
        attempt = Attempt(POOL, self.id, offer, offer.fence + 1, offer.attempt + 1)
        started = ev.JobStarted(
            worker_id=self.id, offer_id=offer.offer_id, slot=offer.slot, device="d", attempt=attempt.attempt
        )
        if (await self._store.attempts.start(attempt, started, [position])).word != "APPLIED":
            return
        await self._store.attempts.emit(attempt, [ev.JobProgress(progress=50, step=1, total_steps=2)])
        released = ev.JobDeviceReleased(gpu_ms=5)
        if random.random() < 0.1:
            error = ev.ErrorFacts(code="invalid_input")
            tried = ev.JobAttemptFailed(error=error, attempt=attempt.attempt, will_retry=False)
            ends: list[ev.Event] = [released, tried, ev.JobFailed(error=error, attempts=attempt.attempt)]
        else:
            ends = [released, ev.JobCompleted(attempt=attempt.attempt)]
        await self._store.attempts.emit(attempt, ends, closes=True)
        self.done_count += 1


@contextlib.contextmanager
def service(name: str, url: str, folder: Path) -> Iterator[None]:
    """Run one service."""
    env = os.environ | SETTINGS | {"HEADRACE_REDIS__URL": url, "HEADRACE_DATA_DIR": str(folder)}
    process = subprocess.Popen([sys.executable, "-m", f"services.{name}"], cwd=ROOT, env=env)
    try:
        yield
    finally:
        end(process)


def run(jobs: int, rate: float) -> list[Sample]:
    """Carry it out; returns what was seen."""
    os.environ.update(SETTINGS)
    with own_store() as (url, folder), contextlib.ExitStack() as running:
        target = running.enter_context(ingest_alone(url, folder))
        for name in ("scheduler", "notifier", "archivist"):
            running.enter_context(service(name, url, folder))
        return uvloop.run(_drive(target, jobs, rate))


async def _drive(target: Target, jobs: int, rate: float) -> list[Sample]:
    store, samples = Store(target.store_url), list[Sample]()
    await store.directory.open()
    await store.open_pool(POOL)
    worker = Worker(store, SLOTS)
    await worker.register()
    numbers = iter(range(jobs))
    begun_s = time.monotonic()
    submitting = [asyncio.create_task(_submit(target, numbers, rate, begun_s)) for _ in range(CONNECTIONS)]
    sampling = asyncio.create_task(_sample(target, worker, samples))
    await worker.finish_all(jobs)
    await asyncio.gather(*submitting)
    sampling.cancel()
    await store.aclose()
    return samples


async def _submit(target: Target, numbers: Iterator[int], rate: float, begun_s: float) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    body = payload()
    for number in numbers:
        await asyncio.sleep(max(0.0, begun_s + number / rate - time.monotonic()))
        head = (
            f"POST /v1/jobs HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer {target.key}\r\nContent-Type: application/json"
            f'\r\nIdempotency-Key: "k{number}"\r\nContent-Length: {len(body)}\r\n\r\n'
        )
        writer.write(head.encode() + body)
        answer = b""
        while not (status := whole_answer(answer)):
            answer += await reader.read(65536)
        assert status == 201, answer
    writer.close()


async def _sample(target: Target, worker: Worker, samples: list[Sample]) -> None:
    begun_s, told = time.monotonic(), 0
    with redis.Redis.from_url(target.store_url) as client:
        while True:
            info = client.info("memory")
            beside = sum(int(info.get(name, 0)) for name in ("mem_clients_normal", "mem_aof_buffer"))
            used, at_s = int(info["used_memory"]) - beside, time.monotonic() - begun_s
            samples.append(Sample(worker.done_count, used, client.dbsize(), client.xlen(keys.log(POOL)), at_s))
            if worker.done_count - told >= 1_000:
                told = worker.done_count
                print(samples[-1], os.getloadavg(), file=sys.stderr, flush=True)
            await asyncio.sleep(SAMPLE_S)


def tell(samples: list[Sample]) -> str:
    """Return the figure in words; the first stretch is the warm-up."""
    stretches: dict[int, list[int]] = {}
    for sample in samples:
        stretches.setdefault(sample.jobs // STRETCH, []).append(sample.used_bytes)
    measured = [each for number, each in sorted(stretches.items()) if number and len(each) > 1]
    means, peaks = [fmean(each) for each in measured], [max(each) for each in measured]
    off = max(abs(mean / median(means) - 1) for mean in means)
    peak_off = max(abs(peak / median(peaks) - 1) for peak in peaks)
    lines = [
        f"from {(number + 1) * STRETCH:,} jobs: mean {mean / 1e6:.2f} MB, peak {peak / 1e6:.2f} MB"
        for number, (mean, peak) in enumerate(zip(means, peaks, strict=True))
    ]
    rate = samples[-1].jobs / samples[-1].at_s
    verdict = "holds" if off <= BAR else "missed"
    lines.append(
        f"means within {cut_up(off * 100, 1)} % of their median, at most {BAR:.0%}: {verdict}; "
        f"peaks within {cut_up(peak_off * 100, 1)} %; {rate:.0f} jobs/s, {describe()}, "
        f"load average {os.getloadavg()[1]:.1f}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    print(tell(run(int(arguments[0]) if arguments else JOBS, float(arguments[1]) if arguments[1:] else RATE)))
