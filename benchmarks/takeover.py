"""How long nobody leads after a leader is killed with many jobs pending: `python -m benchmarks.takeover`.

From kill -9 until the successor's first assignment, to a worker that registers in that moment: once with a standby that
has folded along, once with a process that is started only then and reads the newest snapshot. Beside it what a snapshot
weighs and how long it takes, in a process of its own.
"""

import argparse
import os
import subprocess
import sys

import uvloop

from benchmarks.figures import Row, cut_up
from benchmarks.leading import LEASE_S, POOL, Crew, admit, folded, monotonic_s, scheduler
from benchmarks.processes import ROOT
from benchmarks.rig import own_store
from contracts.store import Store, keys
from contracts.store.clients import read_hash

JOBS = 100_000
BAR_S = LEASE_S + 1


def measure(jobs: int = JOBS) -> list[Row]:
    """Return the times without a leader, and the snapshot's size and time."""
    with own_store() as (url, _):
        return uvloop.run(_measure(url, jobs))


async def _measure(url: str, jobs: int) -> list[Row]:
    store = Store(url)
    await store.directory.open()
    await store.open_pool(POOL)
    with scheduler(url) as first:
        await admit(store, jobs)
        await folded(store)
        begun_s = monotonic_s()
        _keep(url)
        kept_s = monotonic_s() - begun_s
        size = await _snapshot_bytes(store)
        with scheduler(url, told=True) as standby:
            _standing_by(standby)
            hot_s = await _until_assigned(store, first)
            begun_s = monotonic_s()
            standby.kill()
            standby.wait()
            with scheduler(url):
                cold_s = await _assigned(store, begun_s)
    await store.aclose()
    return [
        Row(f"seconds without a leader, {jobs:,} pending, a standby", cut_up(hot_s), "", bar=f"<= {BAR_S:g}",
            holds=hot_s <= BAR_S),
        Row(f"the same, a new process from the snapshot ({size / 1e6:.1f} MB, kept in {kept_s:.1f} s)",
            cut_up(cold_s), "", bar=f"<= {BAR_S:g}", holds=cold_s <= BAR_S),
    ]  # fmt: skip


def _keep(url: str) -> None:
    env = os.environ | {"HEADRACE_REDIS__URL": url}
    subprocess.run([sys.executable, "-m", "services.scheduler", "--snapshot", POOL], cwd=ROOT, env=env, check=True)


async def _snapshot_bytes(store: Store) -> int:
    pointer = await read_hash(store.client, keys.snapshot(POOL))
    parts = await store.client.lrange(keys.snapshot_parts(POOL, pointer["id"]), 0, -1)
    return sum(len(part) for part in parts)


def _standing_by(standby: "subprocess.Popen[bytes]") -> None:
    """Wait until the standby has said so: it has folded the snapshot by then."""
    assert standby.stderr is not None
    for line in standby.stderr:
        if b'"standing_by"' in line:
            return
    raise ChildProcessError("the standby ended")


async def _until_assigned(store: Store, leader: "subprocess.Popen[bytes]") -> float:
    begun_s = monotonic_s()
    leader.kill()
    leader.wait()
    return await _assigned(store, begun_s)


async def _assigned(store: Store, begun_s: float) -> float:
    crew = Crew(store, 1)
    await crew.register()
    while not crew.offers:
        await crew.look()
    return monotonic_s() - begun_s


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.takeover", description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    for row in measure(parser.parse_args().jobs):
        print(f"{row.what}: {row.product} (bar {row.bar}, {'holds' if row.holds else 'missed'})")


if __name__ == "__main__":
    main()
