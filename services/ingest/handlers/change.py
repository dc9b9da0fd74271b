"""`PATCH /v1/jobs/{id}`: another priority, other metadata, other webhook events, while the job has not ended.

Promises: what is asked for is so when it is answered, and a repeat changes nothing; under `If-Match` nothing is
changed that the caller has not seen. The caller's words go into the body of the job, their names into the log.
"""

import asyncio
import random
from collections.abc import Mapping
from weakref import WeakValueDictionary

from aiohttp import web

from contracts import events as ev
from contracts.api import JobPatch
from contracts.job import TERMINAL
from contracts.retry import Backoff
from contracts.store.words import Word
from contracts.store.write import JobGuard, Write
from services.ingest.context import Context
from services.ingest.edge.conditional import etag, is_expected
from services.ingest.edge.headers import only_header
from services.ingest.edge.problems import Fault, Problem
from services.ingest.handlers.answers import json_answer
from services.ingest.handlers.bodies import read_as
from services.ingest.handlers.read import Details, JobReader, Shown, job_not_found
from services.ingest.minting import Mint
from services.ingest.requests import invalid_input
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import change_line

CHANGE_TRIES = 10
# After a try that another process overtook: those who change one job at the same moment must not meet again and again.
OVERTAKEN = Backoff(base_ms=4, cap_ms=500, jitter_ratio=1.0)
MOST_CHANGES = 100  # of metadata and webhook events; each stays in the body, so that the job can be shown as it was


class ChangeHandler:
    """Changes one job."""

    def __init__(self, context: Context, reader: JobReader) -> None:
        self._context = context
        self._reader = reader
        self._mint = Mint(context.now_ms)
        # Those who change one job take turns here: on a busy machine one of many would lose every race it may run.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def change(self, request: web.Request, caller: Caller) -> web.Response:
        """Change the job and show it; 409 when it has ended, or is not what `If-Match` says."""
        wanted = await read_as(self._context, request, JobPatch)
        if_match = only_header(request, "If-Match")
        shown = await self._reader.need(caller, request.match_info["id"])
        turn = self._turns.setdefault(shown.state.id, asyncio.Lock())
        await self._context.within(turn.acquire())
        try:
            return await self._change(shown, wanted, if_match, f"key/{caller.key_id}")
        finally:
            turn.release()

    async def _change(self, shown: Shown, wanted: JobPatch, if_match: str | None, by: str) -> web.Response:
        """Change the job, again when somebody else was faster."""
        for tries in range(1, CHANGE_TRIES + 1):
            details = await self._reader.details(shown)
            _check(details, if_match)
            events = changes_of(details, wanted, by)
            if not events or await self._write(details, wanted, events):
                view = self._reader.show(details) if not events else await self._reader.view(shown)
                return json_answer(view, headers={"ETag": etag(view["sequence"])})
            await asyncio.sleep(OVERTAKEN.delay_ms(tries, random.random()) / 1000)
        raise Problem("version_mismatch", "The job is changing too fast; try again", retry_after_s=1)

    async def _write(self, details: Details, wanted: JobPatch, events: tuple[ev.Event, ...]) -> bool:
        """Write the change; False when the job has moved on meanwhile."""
        state = details.state
        write = Write(
            state.id,
            events,
            fence=state.fence,
            hooked=frozenset(details.lines.spec.get("webhookEvents") or ()),
            guard=JobGuard(sequence=state.sequence),
        )
        lines = b"".join(_line(event, wanted, state.sequence + i) for i, event in enumerate(events, 1))
        call = self._context.store.jobs.append(details.meta.name, write, self._mint.token(), line=lines)
        reply = await self._context.within(call)
        if reply.word is Word.GONE:
            raise job_not_found()
        return reply.applied


def changes_of(details: Details, wanted: JobPatch, by: str) -> tuple[ev.Event, ...]:
    """Return what has to happen; nothing when all is as wanted already. Raises Problem `invalid_input`."""
    events: list[ev.Event] = []
    before = details.state.priority
    if wanted.priority is not None and wanted.priority != before:
        events.append(ev.JobPriorityChanged(priority=wanted.priority, previous=before, by=by))
    known = details.lines.spec.get("metadata") or {}
    if wanted.metadata is not None and wanted.metadata != known:
        _check_count(details, "/metadata")
        events.append(ev.JobMetadataChanged(keys=_changed_keys(known, wanted.metadata), by=by))
    if wanted.webhook_events is not None and (chosen := _subscribed(details, wanted.webhook_events)):
        _check_count(details, "/webhookEvents")
        events.append(ev.JobWebhookChanged(events=chosen, by=by))
    return tuple(events)


def _subscribed(details: Details, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return what the webhook subscribes to from now on; nothing when it does already."""
    spec = details.lines.spec
    if not spec.get("webhookUrl"):
        message = "the job has no webhookUrl: nobody would be told"
        raise invalid_input((Fault("/webhookEvents", "contradiction", message),))
    chosen = tuple(dict.fromkeys(wanted))
    return () if set(chosen) == set(spec.get("webhookEvents") or ()) else chosen


def _check_count(details: Details, pointer: str) -> None:
    if details.lines.changes >= MOST_CHANGES:
        message = f"metadata and webhook events of a job can be changed {MOST_CHANGES} times"
        raise invalid_input((Fault(pointer, "too_many", message),))


def _line(event: ev.Event, wanted: JobPatch, sequence: int) -> bytes:
    match event:
        case ev.JobMetadataChanged():
            return change_line({"metadata": wanted.metadata}, sequence)
        case ev.JobWebhookChanged(events=chosen):
            return change_line({"webhookEvents": chosen}, sequence)
        case _:
            return b""


def _check(details: Details, if_match: str | None) -> None:
    state = details.state
    if not is_expected(if_match, etag(state.sequence)):
        detail = f"The job has had {state.sequence} events by now"
        raise Problem("version_mismatch", detail, headers={"ETag": etag(state.sequence)})
    if state.status in TERMINAL:
        raise Problem("already_terminal", f"The job is {state.status}")
    if not details.lines.spec:
        raise Problem("data_erased", "The content of the job was erased")


def _changed_keys(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)))
