"""How many assignments a second one leader makes through the real store: `python -m benchmarks.leader_loop`.

Two figures. Dispatch: so many free slots at once, nothing else to do, by the clock. Whole lives: jobs are assigned,
started and completed by a driver; what counts is the leader's CPU time for each, all five entries folded, since the
driver and the store are slower than it on a machine of two cores.
"""

import argparse
import pstats
import tempfile
from pathlib import Path

import uvloop

from benchmarks.figures import Row, cut_down
from benchmarks.leading import POOL, Crew, admit, folded, monotonic_s, scheduler
from benchmarks.processes import cpu_s
from benchmarks.rig import own_store
from contracts.store import Store, keys

SLOTS, JOBS, BAR = 4_096, 20_000, 2_000
FLEET = 64  # slots of the fleet whose jobs run to their end


def measure(profile: Path | None = None) -> list[Row]:
    """Return one row for each of the two figures."""
    with own_store() as (url, _):
        dispatch = uvloop.run(_dispatch(url))
    with own_store() as (url, _):
        lives = uvloop.run(_lives(url, profile))
    return [
        Row("assignments a second, free slots enough, by the clock", cut_down(dispatch, 0), "", bar=f">= {BAR:,}",
            holds=dispatch >= BAR),
        Row("jobs a second of leader CPU, from assignment to completion", cut_down(lives, 0), "", bar=f">= {BAR:,}",
            holds=lives >= BAR),
    ]  # fmt: skip


async def _dispatch(url: str) -> float:
    store = Store(url)
    await store.directory.open()
    await store.open_pool(POOL)
    with scheduler(url):
        await admit(store, SLOTS)
        await folded(store)
        length, crew = await store.client.xlen(keys.log(POOL)), Crew(store, SLOTS)
        begun_s = monotonic_s()
        await crew.register()
        while await store.client.xlen(keys.log(POOL)) < length + 1 + SLOTS:
            pass
        seconds = monotonic_s() - begun_s
    await store.aclose()
    return SLOTS / seconds


async def _lives(url: str, profile: Path | None) -> float:
    store = Store(url)
    await store.directory.open()
    await store.open_pool(POOL)
    with scheduler(url, profile) as leader:
        await admit(store, JOBS)
        await folded(store)
        crew = Crew(store, FLEET)
        before_s = cpu_s(leader.pid) or 0.0
        await crew.register()
        await crew.finish_all(JOBS)
        await folded(store)
        used_s = (cpu_s(leader.pid) or 0.0) - before_s
    await store.aclose()
    return JOBS / used_s


def main() -> None:
    """Print the figures, and with --profile where the leader's time goes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leader_loop", description=__doc__)
    parser.add_argument("--profile", action="store_true")
    if not parser.parse_args().profile:
        for row in measure():
            print(f"{row.what}: {row.product} (bar {row.bar}, {'holds' if row.holds else 'missed'})")
        return
    with tempfile.TemporaryDirectory() as folder, own_store() as (url, _):
        profile = Path(folder) / "leader.prof"
        uvloop.run(_lives(url, profile))
        pstats.Stats(str(profile)).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
