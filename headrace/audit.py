"""`headrace audit`: is the live state what the log says, and is the log what was signed? Reads the store directly,
but for `actions`.

The exit code is 0 when all is right, 1 when something is not. Written is what came of it, and by a repair what it is
told to. `POST /v1/audit/verify` runs this program, too, so both tell the same.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeVar

import typer

from contracts.archive import Archive, open_archive
from contracts.audit import Beside, Checkpoint, Repaired, Scope, Verdict, checkpoints, record, repair, verify
from contracts.audit.mending import Mended
from contracts.audit.queues import QueueAudit
from contracts.audit.verify import EVERYTHING
from contracts.errors import ConfigError, HeadraceError
from contracts.ids import is_job_id
from contracts.positions import BadPosition, entry_key, parse_position
from contracts.settings import Settings, load_settings
from contracts.store import Store, keys
from contracts.tenant import Configuration
from contracts.usage.audit import UsageAudit
from headrace.audit_actions import actions
from headrace.client import JsonObject
from headrace.command import Output, Reason, exit_for_error
from headrace.exits import Exit
from headrace.output import Format, note, show_list
from headrace.store_server import ensure, release
from services.archivist.audit import RetentionAudit
from services.notifier.replanning import Replanner
from services.scheduler.audit import SnapshotAudit

T = TypeVar("T")
app = typer.Typer(no_args_is_help=True, help="Is the live state the truth, and was the log altered?")
Pool = Annotated[str | None, typer.Option(help="Name of the pool.", show_default="all, and the configuration")]

app.command(name="actions")(actions)


@dataclass(frozen=True, slots=True)
class _Asked:
    scope: Scope
    repairs: bool
    records: bool
    reason: str
    by: str


@app.command(name="verify")
def verify_(
    pool: Pool = None,
    job: Annotated[str, typer.Option(help="Only this job.")] = "",
    tenant: Annotated[str, typer.Option(help="Only jobs of this tenant.")] = "",
    after: Annotated[str, typer.Option(help="Only what lies in the log behind this position.")] = "",
    until: Annotated[str, typer.Option(help="Only the log up to this position; no live state.")] = "",
    repairs: Annotated[bool, typer.Option("--repair", help="Make live state that differs anew, from the log.")] = False,
    records: Annotated[bool, typer.Option("--record/--no-record", help="Write into the log what came of it.")] = True,
    reason: Reason = "",
    by: Annotated[str, typer.Option(hidden=True)] = "operator",
    background: Annotated[bool, typer.Option("--background", hidden=True)] = False,
    output: Output = Format.TABLE,
) -> None:
    """Make all live state again from archive and log, compare, and name the first bad position."""
    if background:
        os.nice(10)  # whoever serves on this host goes first
    if repairs and (after or until):
        raise typer.BadParameter("a repair needs the whole log", param_hint="--repair")
    if job and not is_job_id(job):
        raise typer.BadParameter(f"{job!r} is no job", param_hint="--job")
    asked = _Asked(Scope(job, tenant, _position(after), _position(until)), repairs, records, reason, by)
    found = _asked(partial(_verified, asked), pool, asked.scope)
    rows = [row for one in found for row in _rows(one.after)]
    documents = [one.as_json() if repairs else one.after.as_json() for one in found]
    show_list({"data": rows, "pools": documents}, COLUMNS, output)
    for one in found:
        _tell(one)
    if not all(one.after.ok for one in found):
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


def _tell(found: Repaired) -> None:
    verdict, done = found.after, found.done
    if done.refused:
        note(f"{verdict.pool}: nothing was repaired: {done.refused}")
    for projection, count in sorted(done.rebuilt.items()):
        note(f"{verdict.pool}: {count} of {projection} made anew")
    for row, what in done.left:
        note(f"{verdict.pool} {row} is left: {what}")
    for fault in verdict.findings.kept:
        note(f"{verdict.pool} {fault.position} {fault.kind}: {fault.what}")
    for each in verdict.projections:
        for text in each.sample:
            note(f"{verdict.pool} {each.name} {text}")
    if verdict.findings.first:
        note(f"{verdict.pool}: the first bad position is {verdict.findings.first}")


async def _verified(asked: _Asked, store: Store, archive: Archive, pools: list[str]) -> list[Repaired]:
    return [await _one(asked, store, archive, pool) for pool in pools]


async def _one(asked: _Asked, store: Store, archive: Archive, pool: str) -> Repaired:
    beside = _beside(store, pool)
    if asked.repairs and pool != keys.SYSTEM:
        replan = Replanner(store, archive, pool, load_settings(os.environ).public_url)
        found = await repair(store, archive, pool, asked.scope, beside, replan, asked.reason, asked.by)
    else:
        verdict = await verify(store, archive, pool, asked.scope, beside)
        found = Repaired(verdict, Mended(), verdict)
    if asked.records:
        await record(store, found.after, asked.by)
    return found


def _beside(store: Store, pool: str) -> list[Beside]:
    if pool == keys.SYSTEM:
        return []
    return [SnapshotAudit(store, pool), UsageAudit(store, pool), RetentionAudit(store, pool), QueueAudit(store, pool)]


async def _signed(store: Store, archive: Archive, pools: list[str]) -> list[tuple[str, list[Checkpoint]]]:
    return [(pool, [said async for said in checkpoints(store, archive, pool)]) for pool in pools]


def _asked(ask: Callable[[Store, Archive, list[str]], Awaitable[T]], pool: str | None, scope: Scope = EVERYTHING) -> T:
    settings = load_settings(os.environ)
    try:
        with _store_url(settings) as url:
            return asyncio.run(_ask(ask, url, settings, pool, scope))
    except HeadraceError as fault:
        note(f"error: {fault}")
        raise typer.Exit(exit_for_error(fault)) from None


def _position(text: str) -> str:
    """Return a position of the log, given as it is or as events show it."""
    try:
        entry = parse_position(text).entry if "." in text else text
        if entry:
            entry_key(entry)
    except (BadPosition, ValueError):
        raise typer.BadParameter(f"{text!r} is no position") from None
    return entry


def _pools(configuration: Configuration, pool: str | None, scope: Scope) -> list[str]:
    """Return which pools are meant; a job's id says in which one it is. Raises ConfigError."""
    known = [*configuration.pools, keys.SYSTEM]
    if scope.tenant_id:
        known.remove(keys.SYSTEM)
    if scope.job_id:
        known = [name for name, code in configuration.pools.items() if code == scope.job_id[-2:]]
    if pool is not None and pool not in known:
        raise ConfigError([f"there is no pool {pool}; there are {', '.join(known)}"])
    return known if pool is None else [pool]


async def _ask(
    ask: Callable[[Store, Archive, list[str]], Awaitable[T]], url: str, settings: Settings, pool: str | None,
    scope: Scope,
) -> T:  # fmt: skip
    store = Store(url)
    try:
        pools = _pools(await store.directory.refresh(), pool, scope)
        return await ask(store, open_archive(store, settings), pools)
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
