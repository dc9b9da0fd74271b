"""Has audits done that were asked for, one at a time over all processes: by `headrace audit verify`, as a child.

A fold of a million entries has no place in a process that answers requests.
Promises: an audit is one process's until its lease runs out, and is begun anew by another when that is gone; the child
is bounded in time and in what it says, and never outlives the claim for longer than a look.
"""

import asyncio
import contextlib
from asyncio.subprocess import Process
from dataclasses import replace
from typing import Any

import orjson
import structlog

from contracts.asked_audit import AskedAudit
from contracts.errors import Corrupt, Unavailable
from contracts.own_python import own_python
from contracts.store import keys
from contracts.store.log import pause
from contracts.telemetry import Logger
from contracts.waiting import wait
from services.ingest.context import Context
from services.ingest.minting import Mint

LOOK_EVERY_S = 1.0
LEASE_MS, RENEW_S = 15_000, 3.0
LONGEST_S = 3_600.0
MOST_BYTES = 4 << 20
ENDED_OK, ENDED_WRONG = 0, 1
_FRAME = " \u2500\u2502\u256d\u256e\u256f\u2570"  # that a usage error is printed in

Said = asyncio.Future[tuple[bytes, bytes, int]]

log: Logger = structlog.get_logger(service="ingest")


class AuditWorker:
    """Run it as a task of each ingest process."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._who = Mint(context.now_ms).token()

    async def run(self, stop: asyncio.Event) -> None:
        """Have done what is asked for until `stop`; no outage of the store ends it."""
        failures = 0
        while not stop.is_set():
            try:
                await self._next(stop)
                failures = 0
            except (Unavailable, Corrupt, OSError) as error:
                failures += 1
                log.warning("audit_not_worked_on", reason=str(error), failures_count=failures)
            except Exception:  # whatever is wrong with one audit, others are waited for
                failures += 1
                log.exception("audit_failed")
            await (pause(failures, stop, 0.5) if failures else wait(stop, LOOK_EVERY_S))

    async def _next(self, stop: asyncio.Event) -> None:
        work = self._context.store.audit_work
        asked = await work.claim(keys.SYSTEM, self._who, LEASE_MS)
        under_way = [each.id for each in await work.all(keys.SYSTEM) if not each.done_ms] if asked else []
        if asked is None or under_way[:1] != [asked.id]:
            return  # an older one is another's, and goes first
        ended = await self._done(asked, stop)
        if ended is not None and await work.keep(keys.SYSTEM, self._who, LEASE_MS, ended):
            log.info("audit_done", audit_id=ended.id, error=ended.error)

    async def _done(self, asked: AskedAudit, stop: asyncio.Event) -> AskedAudit | None:
        """Run the program to its end, with our environment; None when told to stop, or when it is another's by now."""
        child = await asyncio.create_subprocess_exec(
            *own_python("headrace", *asked.words()),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None
        assert child.stderr is not None
        said: Said = asyncio.gather(_read(child.stdout), _read(child.stderr), child.wait())
        try:
            if not await self._held(asked, child, said, stop):
                return None
            document, noted, code = said.result()
        finally:
            said.cancel()
            if child.returncode is None:
                child.kill()
                await child.wait()
            with contextlib.suppress(asyncio.CancelledError):
                await said
        return ended_audit(asked, document, noted, code, self._context.now_ms())

    async def _held(self, asked: AskedAudit, child: Process, said: Said, stop: asyncio.Event) -> bool:
        """Keep the claim while the child works; whether it ended while it was ours."""
        stopping = asyncio.ensure_future(stop.wait())
        clock_s = asyncio.get_running_loop().time
        end_s = clock_s() + LONGEST_S
        try:
            while not said.done():
                ends: list[asyncio.Future[Any]] = [said, stopping]
                await asyncio.wait(ends, timeout=RENEW_S, return_when=asyncio.FIRST_COMPLETED)
                held = await self._context.store.audit_work.keep(keys.SYSTEM, self._who, LEASE_MS, asked)
                if stop.is_set() or not held:
                    return False
                if clock_s() > end_s and child.returncode is None:
                    child.kill()
            return True
        finally:
            stopping.cancel()


def ended_audit(asked: AskedAudit, document: bytes, noted: bytes, code: int, now_ms: int) -> AskedAudit:
    """Return what came of it; `noted` is what the program said beside its document."""
    if code in (ENDED_OK, ENDED_WRONG) and _is_object(document):
        return replace(asked, done_ms=now_ms, document=document.decode())
    lines = [line.strip(_FRAME) for line in noted.decode("utf-8", "replace").splitlines()]
    said = [line for line in lines if line] or [f"it ended with {code}"]
    return replace(asked, done_ms=now_ms, error=said[-1][:500])


def _is_object(document: bytes) -> bool:
    try:
        return isinstance(orjson.loads(document), dict)
    except orjson.JSONDecodeError:
        return False


async def _read(stream: asyncio.StreamReader) -> bytes:
    """Return what it says, at most so much; the rest is read and dropped, or its writer would wait for ever."""
    found = bytearray()
    while part := await stream.read(65_536):
        found += part[: MOST_BYTES - len(found)]
    return bytes(found)
