"""The replays under way in this process of ingest, and what came of those that are over.

Promises: a replay has a process of its own, with bounds on time, memory and bytes of its answer, that ends with us; at
most AT_ONCE of them run, one for each tenant. Nothing is written: what is known of a replay is known here, for the last
KEPT of them (ANSWERS of those that have one), and its id says all that is needed to run it again elsewhere.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import orjson
import structlog

from contracts.own_python import own_python
from contracts.settings import Settings
from contracts.telemetry import Logger
from services.ingest.edge.problems import POLICIES, Problem
from services.ingest.views.body_lines import JsonObject

log: Logger = structlog.get_logger(service="ingest")

AT_ONCE = 2
KEPT = 200
ANSWERS = 16
LIMIT_S = 60.0
MEMORY_BYTES = 1 << 30
ANSWER_BYTES = 1 << 20
NICE = 10
Status = Literal["ready", "running", "completed", "failed", "cancelled"]


@dataclass(slots=True)
class Run:
    """One replay. `module`: what is run for it; empty for a stream, which whoever reads it runs."""

    id: str
    tenant_id: str
    module: str
    question: JsonObject
    created_ms: int
    status: Status = "ready"
    result: JsonObject | None = None
    problem: JsonObject | None = None
    task: "asyncio.Task[None] | None" = field(default=None, repr=False)


class Runs:
    """See the module."""

    def __init__(self, settings: Settings) -> None:
        # where store and archive are, and none of our keys
        self._told = {
            "redis": {"url": settings.redis.url},
            "archive": settings.archive.model_dump(mode="json"),
            "data_dir": str(settings.data_dir.absolute()),
        }
        self._known: OrderedDict[str, Run] = OrderedDict()

    def of(self, tenant_id: str) -> list[Run]:
        """Return a tenant's replays that are known here, the newest first; not those that were deleted."""
        mine = [run for run in self._known.values() if run.tenant_id == tenant_id and run.status != "cancelled"]
        return sorted(mine, key=lambda run: run.created_ms, reverse=True)

    def find(self, replay_id: str) -> Run | None:
        """Return what is known of a replay."""
        return self._known.get(replay_id)

    def begin(self, run: Run) -> Run:
        """Know a replay, and start its process if it has one. Raises Problem `quota_exceeded`."""
        if run.module:
            busy = [each for each in self._known.values() if each.status == "running"]
            if len(busy) >= AT_ONCE or any(each.tenant_id == run.tenant_id for each in busy):
                told = f"One replay that computes at a time for each tenant, {AT_ONCE} in all"
                raise Problem("quota_exceeded", told, retry_after_s=5, extensions={POLICIES: ["replays"]})
            run.status, run.task = "running", asyncio.create_task(self._run(run), name="replay")
        self._known[run.id] = run
        self._forget()
        return run

    def _forget(self) -> None:
        over = [each.id for each in self._known.values() if each.status != "running"]
        answered = [each.id for each in self._known.values() if each.result is not None]
        for old in {*over[: max(0, len(self._known) - KEPT)], *answered[: max(0, len(answered) - ANSWERS)]}:
            del self._known[old]

    def cancel(self, run: Run) -> None:
        """End a replay: it is not shown any more, and its process is killed."""
        run.status, run.result = "cancelled", None
        self._known[run.id] = run
        self._known.move_to_end(run.id)
        self._forget()
        if run.task is not None:
            run.task.cancel()

    async def aclose(self) -> None:
        """End all of them."""
        tasks = [run.task for run in self._known.values() if run.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, run: Run) -> None:
        bounds = {"memoryBytes": MEMORY_BYTES, "cpuS": max(1, round(LIMIT_S)), "nice": NICE}
        asked = {"question": run.question, "settings": self._told, **bounds}
        told: JsonObject = {"problem": _problem("failed", "the process that computed it ended")}
        try:
            async with asyncio.timeout(LIMIT_S):
                told = await _answer(run.module, orjson.dumps(asked))
        except TimeoutError:
            told = {"problem": _problem("too_large", f"it took more than {LIMIT_S:g} s; ask about less")}
        except (OSError, ValueError) as error:
            log.warning("replay_failed", module=run.module, detail=f"{type(error).__name__}: {error}")
        run.result, run.problem = told.get("result"), told.get("problem")
        run.status = "completed" if run.result is not None else "failed"


async def _answer(module: str, asked: bytes) -> JsonObject:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *own_python(module), stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(asked + b"\n")  # and it stays open: its end is how the process learns of ours
        await process.stdin.drain()
        told = await process.stdout.read(ANSWER_BYTES + 1)
        while told and len(told) <= ANSWER_BYTES and (more := await process.stdout.read(ANSWER_BYTES)):
            told += more
        if len(told) > ANSWER_BYTES:
            return {"problem": _problem("too_large", "its answer is too large; ask about less")}
        if status := await process.wait():
            log.warning("replay_failed", module=module, status=status)
            return {"problem": _problem("failed", "the process that computed it ended")}
        found = orjson.loads(told)
        assert isinstance(found, dict)
        return found
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _problem(code: str, detail: str) -> JsonObject:
    return {"code": code, "detail": detail}
