"""`python -m services.scheduler`: one candidate for each pool that pipelines.toml names or the store knows.

`--snapshot POOL` instead keeps one snapshot of the pool's fold and ends; leaders start it for themselves.
"""

import asyncio
import contextlib
import gc
import os
import random
import signal
import sys
from asyncio import FIRST_COMPLETED

import uvloop

from contracts import models
from contracts.archive import Gone, open_archive
from contracts.errors import ConfigError, HeadraceError, StoreUnavailable
from contracts.own_python import own_python
from contracts.secrecy import hide_this_process
from contracts.settings import Settings, load_settings
from contracts.store import Store
from contracts.store.anchored import Forked
from contracts.store.log import pause
from contracts.telemetry import Logger, configure_logging
from services.scheduler.config import SchedulerConfig, make_config
from services.scheduler.service import Candidate
from services.scheduler.snapshots import fold_and_keep, load_state

NEW_POOLS_S = 1.0  # between two looks for pools that are new


async def serve(settings: Settings, log: Logger) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    named = models.load(settings.pipelines).pools
    config = make_config(settings)
    store = Store(settings.redis.url)
    open_archive(store, settings)
    following: asyncio.Task[None] | None = None
    try:
        pools = await _open(store, named, stop)
        following = asyncio.create_task(store.directory.follow(stop))
        await _serve_pools(store, pools, config, log, stop)
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await store.aclose()
    log.info("stopped")


async def _open(store: Store, named: tuple[str, ...], stop: asyncio.Event) -> list[str]:
    """Open the directory and all pools, however long the store is away; [] when told to stop meanwhile."""
    failures = 0
    while not stop.is_set():
        try:
            await store.directory.open()
            pools = sorted({*named, *store.directory.configuration.pools})
            for pool in pools:
                await store.open_pool(pool)
            return pools
        except StoreUnavailable:
            failures += 1
            await pause(failures, stop, random.random())
    return []


async def _serve_pools(
    store: Store, pools: list[str], config: SchedulerConfig, log: Logger, stop: asyncio.Event
) -> None:  # fmt: skip
    """Run a candidate for each pool, also for those that come into being meanwhile."""
    running = {pool: asyncio.create_task(_run_pool(store, pool, config, log, stop)) for pool in pools}
    stopping = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set():
            done, _ = await asyncio.wait(
                [stopping, *running.values()], timeout=NEW_POOLS_S, return_when=FIRST_COMPLETED
            )
            for task in done - {stopping}:
                task.result()  # raises what ended it
            for pool in sorted(store.directory.configuration.pools.keys() - running.keys()):
                with contextlib.suppress(StoreUnavailable):
                    await store.open_pool(pool)
                    running[pool] = asyncio.create_task(_run_pool(store, pool, config, log, stop))
        await asyncio.gather(*running.values())
    finally:
        for task in (stopping, *running.values()):
            task.cancel()
        await asyncio.gather(stopping, *running.values(), return_exceptions=True)


async def _run_pool(store: Store, pool: str, config: SchedulerConfig, log: Logger, stop: asyncio.Event) -> None:
    """Run a candidate; where the log was lost under it, another one that folds what is there now."""
    failures = 0
    while not stop.is_set():
        try:
            state = await load_state(store, pool)
        except StoreUnavailable:
            failures += 1
            await pause(failures, stop, random.random())
            continue
        gc.freeze()  # a full collection of a large fold would stall the turns
        try:
            await Candidate(store, pool, state, config, log, _keep_apart).run(stop)
        except (Forked, Gone) as error:
            log.error("log_forked", pool=pool, reason=str(error))
            await pause(1, stop, random.random())


async def _keep_apart(pool: str) -> None:
    """Keep a snapshot in a process of its own, which reads the same environment; it outlives nobody."""
    child = await asyncio.create_subprocess_exec(*own_python("services.scheduler", "--snapshot", pool))
    try:
        await child.wait()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def _snapshot(settings: Settings, pool: str, log: Logger) -> int:
    store = Store(settings.redis.url)
    open_archive(store, settings)
    try:
        kept = await fold_and_keep(store, pool)
    except HeadraceError as error:
        log.error("snapshot_failed", pool=pool, reason=str(error))
        return 1
    finally:
        await store.aclose()
    log.info("snapshot_kept" if kept else "snapshot_outrun", pool=pool)
    return 0


def main() -> int:
    """Read the environment, serve, return the exit code."""
    hide_this_process()
    try:
        settings = load_settings(os.environ)
        if not settings.redis.url:
            raise ConfigError(["HEADRACE_REDIS__URL: is not set; give the URL of the store"])
        log = configure_logging("scheduler", settings.log.level)
        gc.set_threshold(20_000, 20, 50)  # a job makes hundreds of objects and hardly ever a cycle
        if sys.argv[1:2] == ["--snapshot"]:
            return uvloop.run(_snapshot(settings, sys.argv[2], log))
        uvloop.run(serve(settings, log))
    except ConfigError as error:
        sys.stderr.write("\n".join(error.faults) + "\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
