"""`headrace events import`: an export as the log of an instance that has none yet."""

import asyncio
import os
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from contracts.errors import HeadraceError
from contracts.events import AuditAction
from contracts.exports import BadExport, check, records
from contracts.settings import load_settings
from contracts.store import Store, keys
from contracts.store.imports import import_logs
from headrace.command import Reason, exit_for_error
from headrace.exits import Exit
from headrace.output import note
from headrace.store_server import ensure, release


def import_(
    path: Annotated[Path, typer.Argument(help="A file that `headrace events export` wrote, without filters.")],
    pool: Annotated[list[str] | None, typer.Option(help="The pools, in the order of their codes (default).")] = None,
    reason: Reason = "",
) -> None:
    """Read an export into the store of this host, which must be stopped and empty: to look at it, not to run it."""
    try:
        with _opened(path) as file:
            checked = check(file)
        counts = _with_store(path, pool or ["default"], set(checked.codes), reason)
    except OSError as fault:
        note(f"error: {path}: it cannot be read: {fault.strerror}")
        raise typer.Exit(Exit.FAILED_CHECK) from None
    except BadExport as fault:
        note(f"error: {path}: {fault}")
        raise typer.Exit(Exit.FAILED_CHECK) from None
    except HeadraceError as fault:
        note(f"error: {fault}")
        raise typer.Exit(exit_for_error(fault)) from None
    note(f"{sum(counts.values())} events of {checked.jobs} jobs")


def _with_store(path: Path, pools: list[str], codes: set[str], reason: str) -> dict[str, int]:
    settings = load_settings(os.environ)
    url, home = settings.redis.url, settings.data_dir.expanduser()
    try:
        return asyncio.run(_import(url or ensure(home, server=settings.store.server).url, path, pools, codes, reason))
    finally:
        if not url:
            release(home)


async def _import(url: str, path: Path, pools: list[str], codes: set[str], reason: str) -> dict[str, int]:
    store = Store(url)
    try:
        await store.directory.open()
        known = {(await store.open_pool(name)).code: name for name in pools}
        if codes - known.keys():
            raise BadExport(f"it holds events of pools {sorted(codes)}, and these are {known}: name more with --pool")
        with ExitStack() as files:
            logs = {known[code]: records(files.enter_context(_opened(path)), code) for code in sorted(codes)}
            counts = await import_logs(store, logs, secrets.token_hex(8))
        for name, count in counts.items():
            done = AuditAction(action="events.import", target=name, count=count, reason=reason, by="operator")
            await store.note(keys.SYSTEM, name, done, f"import {name}")
        return counts
    finally:
        await store.aclose()


def _opened(path: Path) -> BinaryIO:
    return path.expanduser().open("rb")
