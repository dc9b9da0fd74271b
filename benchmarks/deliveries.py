"""Deliveries per second of one notifier process against a bare loop that signs and POSTs with aiohttp.

Both send the same bytes to one receiver in a process of its own, as many at a time. The bare loop is measured with a
connection for each POST, as ours has (none is shared, by design), and with connections that are kept.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.figures import Row, high, low, ratios, spread
from benchmarks.processes import ROOT, cpu_s, end, output_of, running
from benchmarks.rig import POOL, TENANT, own_store
from contracts import events as ev
from contracts import ids
from contracts.deliveries import PlannedDelivery
from contracts.endpoints import tenant_secret
from contracts.store import Store

ROUNDS = 3
DELIVERIES = 3_000
AT_ONCE = 64
ENDPOINTS = 16
BODY_BYTES = 900
RATE_BAR = 0.8
SECRET = "whsec_" + "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one side."""

    rate: float
    cpu_us: float  # of the sender, for each delivery


def measure() -> list[Row]:
    """Interleave rounds of all sides."""
    ours, fresh, kept = list[Round](), list[Round](), list[Round]()
    with own_store() as (url, _), running("-m", "benchmarks.webhook_receiver") as (receiver, _pid):
        asyncio.run(prepare(url))
        for number in range(ROUNDS):
            target = f"http://127.0.0.1:{receiver['port']}/hook"
            fresh.append(_bare(target, "fresh"))
            kept.append(_bare(target, "kept"))
            asked(receiver["port"])
            ours.append(_ours(url, receiver["port"], number))
    return [
        _row(ours, fresh, "a connection for each", RATE_BAR),
        _row(ours, kept, "connections kept", None),
        _cpu(ours, fresh),
    ]


async def prepare(url: str) -> None:
    """Make the pool and a tenant with a secret."""
    store = Store(url)
    await store.directory.open()
    await store.open_pool(POOL)
    created = ev.TenantCreated(tenant_id=TENANT)
    await store.directory.change(lambda _: created, TENANT, {tenant_secret(TENANT): SECRET})
    await store.aclose()


async def plan(url: str, deliveries: Sequence[PlannedDelivery]) -> None:
    """Store deliveries that are due at once."""
    store = Store(url)
    await store.directory.open()
    for first in range(0, len(deliveries), 500):
        await store.deliveries.plan(POOL, "", deliveries[first : first + 500], [])
    await store.aclose()


def planned(endpoint: str, url: str, job: int, sequence: int) -> PlannedDelivery:
    """Return one delivery to an anonymous endpoint."""
    job_id = ids.mint_job_id(1_764_457_200_000, job, "aa")
    message = ids.event_id(job_id, sequence)
    fields = {"event": "job.completed", "message": message, "url": url, "body": "x" * BODY_BYTES}
    return PlannedDelivery(ids.delivery_id(job_id, sequence, endpoint, 0), fields, endpoint, TENANT, job_id, sequence)


def notifier(url: str, **settings: object) -> "subprocess.Popen[bytes]":
    """Start a notifier process."""
    chosen = {f"HEADRACE_WEBHOOK__{name}": str(value) for name, value in settings.items()}
    base = {"HEADRACE_REDIS__URL": url, "HEADRACE_WEBHOOK__ALLOW_PRIVATE": "loopback", "HEADRACE_LOG__LEVEL": "warning"}
    environment = {**os.environ, **base, **chosen}
    return subprocess.Popen([sys.executable, "-m", "services.notifier"], cwd=ROOT, env=environment)


def asked(port: int) -> dict[str, float]:
    """Return what the receiver counted since it was asked last."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        told: dict[str, float] = json.load(answer)
        return told


def _bare(target: str, how: str) -> Round:
    told = output_of("-m", "benchmarks.bare_sender", target, str(DELIVERIES), str(AT_ONCE), str(BODY_BYTES), how)
    return Round(DELIVERIES / told["wall_s"], told["cpu_s"] / DELIVERIES * 1e6)


def _ours(url: str, port: int, number: int) -> Round:
    listed = [
        planned(f"anon{each % ENDPOINTS:012}", f"http://127.0.0.1:{port}/hook", number, each + 1)
        for each in range(DELIVERIES)
    ]
    with ExitStack() as stack:
        process = notifier(url, CONCURRENCY=AT_ONCE * 2, ENDPOINT_CONCURRENCY=max(1, AT_ONCE // ENDPOINTS))
        stack.callback(end, process)
        asyncio.run(until_idle(process.pid))
        before_s = cpu_s(process.pid) or 0.0
        asyncio.run(plan(url, listed))
        count, first_s, last_s = 0.0, 0.0, 0.0
        deadline_s = time.monotonic() + LIMIT_S
        while count < DELIVERIES:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{count:.0f} of {DELIVERIES} were delivered")
            time.sleep(0.5)
            told = asked(port)
            if told["count"]:
                first_s, last_s = first_s or told["first_s"], told["last_s"]
            count += told["count"]
        time.sleep(0.3)
        spent_s = (cpu_s(process.pid) or 0.0) - before_s
    return Round(DELIVERIES / (last_s - first_s), spent_s / DELIVERIES * 1e6)


async def until_idle(pid: int) -> None:
    """Wait until a process has started: it computes no more."""
    last = -1.0
    while (spent := cpu_s(pid) or 0.0) - last > 0.02 or spent < 0.5:
        last = spent
        await asyncio.sleep(0.5)


def _row(ours: Sequence[Round], bare: Sequence[Round], how: str, bar: float | None) -> Row:
    mine, theirs = [one.rate for one in ours], [one.rate for one in bare]
    ratio = ratios(mine, theirs)
    return Row(
        f"webhooks delivered, one notifier process, {AT_ONCE} at a time",
        high(spread(mine), "/s"),
        high(spread(theirs), "/s") + f" bare aiohttp loop that signs, {how}",
        high(ratio, digits=2),
        "" if bar is None else f"at least {bar}",
        None if bar is None else ratio.mid >= bar,
    )


def _cpu(ours: Sequence[Round], bare: Sequence[Round]) -> Row:
    mine, theirs = spread([one.cpu_us for one in ours]), spread([one.cpu_us for one in bare])
    return Row("CPU of the notifier for each delivery", low(mine, " µs"), low(theirs, " µs") + " the bare loop")
