"""10,000 deliveries to 50 endpoints while one of three notifier processes is killed -9 every two seconds.

Five endpoints are dead, five take five seconds, five answer every other time with 500. Nothing may be lost, what comes
twice has the same id and bytes, and the healthy ones must not notice: from due to received, p99 within two seconds.
The machine must be idle: a process computes for half a second before it sends, and lives for six. Where that takes
longer than it lives, none ever sends.
"""

import asyncio
import itertools
import json
import signal
import socket
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.deliveries import notifier, planned, prepare, until_idle
from benchmarks.figures import Row, quantile
from benchmarks.processes import end, running
from benchmarks.rig import POOL, own_store
from contracts.deliveries import PlannedDelivery
from contracts.store import Store

EACH = 200
KINDS = ("dead",) * 5 + ("slow",) * 5 + ("flap",) * 5 + ("ok",) * 35
PROCESSES = 3
KILL_EVERY_S = 2.0
SPREAD_S = 20.0
KILL_S = 40.0  # a slow attempt takes longer than a sender lives: those end when the killing is over
END_S = 90.0
HEALTHY_BAR_S = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    lost: int
    healthy_p99_s: float
    healthy_worst_s: float
    posts: int
    twice: int
    kills: int
    rss_mib: tuple[float, float]  # of a process of some age: at first, and at most
    states: dict[str, int]


def measure() -> list[Row]:
    """Run it once."""
    found = run(SPREAD_S)
    return [
        Row(
            f"{len(KINDS) * EACH:,} deliveries to 50 endpoints, 15 ill, {PROCESSES} processes, {found.kills} kills",
            f"healthy p99 {found.healthy_p99_s:.2f} s, {found.lost} lost, {found.twice} came twice",
            "",
            bar=f"p99 at most {HEALTHY_BAR_S:.0f} s, 0 lost",
            holds=found.healthy_p99_s <= HEALTHY_BAR_S and not found.lost,
        )
    ]


def run(spread_s: float, kill_every_s: float = KILL_EVERY_S) -> Outcome:
    """Plan the deliveries over `spread_s` and wait until none that can be delivered is missing."""
    with own_store() as (url, _), running("-m", "benchmarks.hostile_receiver") as (receiver, _pid):
        asyncio.run(prepare(url))
        listed = list(_deliveries(receiver["port"]))
        with _senders(url) as senders:
            for sender in senders:
                asyncio.run(until_idle(sender.pid))  # what is measured is sending
            due_s, killed, rss = asyncio.run(_play(url, listed, senders, spread_s, kill_every_s))
        posts = posts_of(receiver["port"])  # the senders are gone: nothing comes any more
        states = asyncio.run(_states(url, listed))
    return _judge(listed, due_s, posts, states, killed, rss)


def _deliveries(port: int) -> Iterator[tuple[str, PlannedDelivery]]:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = unused.getsockname()[1]
    for number in range(EACH):
        for place, kind in enumerate(KINDS):
            url = f"http://127.0.0.1:{dead if kind == 'dead' else port}/{kind}/{place}"
            yield kind, planned(f"anon{place:012}", url, place, number + 1)


@contextmanager
def _senders(url: str) -> Iterator[list["subprocess.Popen[bytes]"]]:
    with ExitStack() as stack:
        senders = [_start(url) for _ in range(PROCESSES)]
        stack.callback(_end_all, senders)
        yield senders


def _end_all(senders: list["subprocess.Popen[bytes]"]) -> None:
    for sender in senders:
        end(sender)


def _start(url: str) -> "subprocess.Popen[bytes]":
    return notifier(url, SCHEDULE="0," + ",".join(["1"] * 40), CIRCUIT_S=1, TIMEOUT_S=15)


async def _play(
    url: str, listed: list[tuple[str, PlannedDelivery]], senders: list["subprocess.Popen[bytes]"],
    spread_s: float, kill_every_s: float,
) -> tuple[dict[str, float], int, list[float]]:  # fmt: skip
    store = Store(url)
    await store.directory.open()
    due_s: dict[str, float] = {}
    rss: list[float] = []
    planning = asyncio.create_task(_plan(store, listed, spread_s, due_s))
    begun_s, killed = time.monotonic(), 0
    for turn in itertools.count():
        await asyncio.sleep(kill_every_s)
        rss.append(max(map(_rss_mib, senders)))
        victim = senders[turn % PROCESSES]
        if planning.done() and (time.monotonic() - begun_s > END_S or await _only_dead_wait(store)):
            break
        if time.monotonic() - begun_s < KILL_S:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            killed += 1
            senders[turn % PROCESSES] = _start(url)
    await planning
    await store.aclose()
    return due_s, killed, rss


async def _plan(
    store: Store, listed: list[tuple[str, PlannedDelivery]], spread_s: float, due_s: dict[str, float]
) -> None:
    size = 100
    pause_s = spread_s / (len(listed) / size)
    next_s = time.monotonic()
    for batch in _batched(listed, size):
        await store.deliveries.plan(POOL, "", [delivery for _, delivery in batch], [])
        due_s |= {delivery.fields["message"]: time.time() for _, delivery in batch}
        next_s += pause_s
        await asyncio.sleep(max(0.0, next_s - time.monotonic()))


def _batched(listed: list[tuple[str, PlannedDelivery]], size: int) -> Iterator[list[tuple[str, PlannedDelivery]]]:
    for first in range(0, len(listed), size):
        yield listed[first : first + size]


async def _only_dead_wait(store: Store) -> bool:
    rows = [await store.deliveries.endpoint(POOL, f"anon{place:012}") for place in range(len(KINDS))]
    return all(not row.waiting for row, kind in zip(rows, KINDS, strict=True) if kind != "dead")


async def _states(url: str, listed: list[tuple[str, PlannedDelivery]]) -> dict[str, str]:
    store = Store(url)
    rows = {each.id: await store.deliveries.read(POOL, each.id) for _, each in listed}
    await store.aclose()
    return {name: row["state"] if row else "none" for name, row in rows.items()}


def posts_of(port: int) -> list[tuple[str, str, float, int]]:
    """Return every POST that came: path, message id, wall time, status."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/all", timeout=30) as answer:
        return [tuple(each) for each in json.load(answer)]


def _rss_mib(process: "subprocess.Popen[bytes]") -> float:
    try:
        fields = Path(f"/proc/{process.pid}/statm").read_text().split()
    except OSError:
        return 0.0
    return int(fields[1]) * 4096 / 2**20


def _judge(
    listed: list[tuple[str, PlannedDelivery]], due_s: dict[str, float], posts: list[tuple[str, str, float, int]],
    states: dict[str, str], killed: int, rss: list[float],
) -> Outcome:  # fmt: skip
    first: dict[str, float] = {}
    good: Counter[str] = Counter()
    for _, message, at_s, status in posts:
        first.setdefault(message, at_s)
        good[message] += status == 200
    waits = [first[each.fields["message"]] - due_s[each.fields["message"]] for kind, each in listed
             if kind == "ok" and each.fields["message"] in first]  # fmt: skip
    kept = ("waiting", "exhausted")
    missing = sum(not good[each.fields["message"]] and states[each.id] not in kept for _, each in listed)
    by_state = Counter(states.values())
    twice = sum(count > 1 for count in good.values())
    return Outcome(
        missing, quantile(waits, 0.99), max(waits), len(posts), twice, killed, (rss[0], max(rss)), dict(by_state)
    )
