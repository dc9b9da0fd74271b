"""`headrace audit`: is the live state what the log says, and is the log what was signed? Reads the store directly.

Nothing is ever written. The exit code is 0 when all is right, 1 when something is not.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, TypeVar

import typer

from contracts.archive import Archive, open_archive
from contracts.audit import Checkpoint, Verdict, checkpoints, verify
from contracts.errors import ConfigError, HeadraceError
from contracts.settings import Settings, load_settings
from contracts.store import Store, keys
from headrace.client import JsonObject
from headrace.command import Output, exit_for_error
from headrace.exits import Exit
from headrace.output import Format, note, show_list
from headrace.store_server import ensure, release

T = TypeVar("T")
app = typer.Typer(no_args_is_help=True, help="Is the live state the truth, and was the log altered?")
Pool = Annotated[str | None, typer.Option(help="Name of the pool.", show_default="all, and the configuration")]


@app.command(name="verify")
def verify_(pool: Pool = None, output: Output = Format.TABLE) -> None:
    """Make all live state again from archive and log, compare, and name the first bad position."""
    found = _asked(_verified, pool)
    rows = [row for verdict in found for row in _rows(verdict)]
    show_list({"data": rows, "pools": [verdict.as_json() for verdict in found]}, COLUMNS, output)
    for verdict in found:
        _tell(verdict)
    if not all(verdict.ok for verdict in found):
        raise typer.Exit(Exit.FAILED_CHECK)


@app.command(name="checkpoints")
def checkpoints_(pool: Pool = None, output: Output = Format.TABLE) -> None:
    """Print the signed checkpoints, and whether the key of this store signed them."""
    found = _asked(_signed, pool)
    rows: list[JsonObject] = [
        {"pool": name, "at": at, "position": said.position, "count": said.count, "hash": said.hash,
         "keyId": said.key_id, "genuine": genuine}
        for name, listed in found for at, said, genuine in listed
    ]  # fmt: skip
    show_list({"data": rows}, ("pool", "position", "count", "hash", "keyId", "genuine"), output)
    if not all(row["genuine"] for row in rows):
        raise typer.Exit(Exit.FAILED_CHECK)


COLUMNS = ("pool", "name", "rows", "differing", "unknown")


def _rows(verdict: Verdict) -> list[JsonObject]:
    findings = sum(verdict.findings.counts.values())
    log: JsonObject = {
        "pool": verdict.pool, "name": "log", "rows": verdict.events, "differing": findings, "unknown": 0
    }  # fmt: skip
    return [log] + [
        {"pool": verdict.pool, "name": each.name, "rows": each.rows, "differing": each.differing,
         "unknown": each.unknown}
        for each in verdict.projections
    ]  # fmt: skip


def _tell(verdict: Verdict) -> None:
    for each in verdict.findings.kept:
        note(f"{verdict.pool} {each.position} {each.kind}: {each.what}")
    for projection in verdict.projections:
        for text in projection.sample:
            note(f"{verdict.pool} {projection.name} {text}")
    if verdict.findings.first:
        note(f"{verdict.pool}: the first bad position is {verdict.findings.first}")


async def _verified(store: Store, archive: Archive, pools: list[str]) -> list[Verdict]:
    return [await verify(store, archive, pool) for pool in pools]


async def _signed(store: Store, archive: Archive, pools: list[str]) -> list[tuple[str, list[Checkpoint]]]:
    return [(pool, [said async for said in checkpoints(store, archive, pool)]) for pool in pools]


def _asked(ask: Callable[[Store, Archive, list[str]], Awaitable[T]], pool: str | None) -> T:
    settings = load_settings(os.environ)
    try:
        with _store_url(settings) as url:
            return asyncio.run(_ask(ask, url, settings, pool))
    except HeadraceError as fault:
        note(f"error: {fault}")
        raise typer.Exit(exit_for_error(fault)) from None


async def _ask(
    ask: Callable[[Store, Archive, list[str]], Awaitable[T]], url: str, settings: Settings, pool: str | None
) -> T:  # fmt: skip
    store = Store(url)
    try:
        await store.directory.refresh()
        known = [*store.directory.configuration.pools, keys.SYSTEM]
        if pool is not None and pool not in known:
            raise ConfigError([f"there is no pool {pool}; there are {', '.join(known)}"])
        return await ask(store, open_archive(store, settings), known if pool is None else [pool])
    finally:
        await store.aclose()


@contextmanager
def _store_url(settings: Settings) -> Iterator[str]:
    """Where the store is; an embedded one is started for as long as it is read."""
    url, home = settings.redis.url, settings.data_dir.expanduser()
    if url:
        yield url
        return
    if not home.exists():
        raise ConfigError([f"no store: {home} does not exist, and HEADRACE_REDIS__URL is not set"])
    try:
        yield ensure(home, server=settings.store.server).url
    finally:
        release(home)  # without a wait: another process may go on using it
