"""The dead letters of all tenants, for the operator: list, show, redrive, discard, and how far that is.

Promises: a call looks at MOST_SCANNED dead letters at most and says how to go on; a dry run writes nothing; a redrive
is asked for here and done by `dead_letters.worker`, so that it outlives this request and this process; a repeat with
the same `Idempotency-Key` finds the operation of the first.
"""

import hashlib
from dataclasses import replace

from aiohttp import web

from contracts import events as ev
from contracts.admin_api import Because, DeadLettersAct, DeadLettersFilter
from contracts.dead_letters import DeadLetter, LetterFilter, Operation, Verb
from contracts.store import keys
from contracts.times import ms_of
from services.ingest.admission.admit import read_key
from services.ingest.context import Context
from services.ingest.dead_letters.finding import MOST_SCANNED, START, LetterFinder, Place
from services.ingest.edge.problems import POLICIES, Problem
from services.ingest.handlers.answers import check_query, json_answer, page_answer, read_limit
from services.ingest.handlers.configured import NOTHING, ConfiguredHandlers
from services.ingest.handlers.read import JobReader, Shown
from services.ingest.minting import Mint
from services.ingest.requests import read_query
from services.ingest.tenancy import Caller
from services.ingest.views.dead_letters import count_view, letter_view, operation_view

_FILTERS = frozenset({"pool", "tenantId", "model", "code", "since", "until"})
_PAGE = frozenset({"limit", "cursor"})


class DeadLetterHandlers(ConfiguredHandlers):
    """Routes below `/admin/v1/dlq`."""

    def __init__(self, context: Context, reader: JobReader) -> None:
        super().__init__(context)
        self._reader, self._finder = reader, LetterFinder(context)
        self._mint = Mint(context.now_ms)

    async def list_letters(self, request: web.Request, caller: Caller) -> web.Response:
        """List dead letters: by pool, then those that failed last first."""
        check_query(request, _FILTERS | _PAGE)
        given = {name: text for name, text in request.query.items() if name in _FILTERS}
        wanted, limit = _filter_of(read_query(DeadLettersFilter, given)), read_limit(request)
        question = f"dlq\n{wanted}"
        found, place = await self._finder.behind(wanted, self._at(question, request.query.get("cursor")), limit)
        return page_answer(
            request, [letter_view(*each) for each in found], self._cursor(question, place and _text(place))
        )

    async def get_letter(self, request: web.Request, caller: Caller) -> web.Response:
        """Show one with its error and the job as it is."""
        check_query(request, NOTHING)
        shown = await self._need(request.match_info["id"])
        details = await self._reader.details(shown)
        job = self._reader.show(details)
        view = letter_view(shown.meta.name, _letter_of(shown, has_body=bool(details.lines.spec)))
        return json_answer(view | {"error": job["error"], "job": job})

    async def redrive(self, request: web.Request, caller: Caller) -> web.Response:
        """Take dead letters back to work, or count them."""
        return await self._act(request, caller, "redrive")

    async def discard(self, request: web.Request, caller: Caller) -> web.Response:
        """Take dead letters off the list, or count them; their events stay."""
        return await self._act(request, caller, "discard")

    async def list_operations(self, request: web.Request, caller: Caller) -> web.Response:
        """List operations, those of the last day among them."""
        known = await self._context.within(self._context.store.letter_work.all(keys.SYSTEM))
        return self._page(request, "dlq operations", {each.id: operation_view(each) for each in known})

    async def get_operation(self, request: web.Request, caller: Caller) -> web.Response:
        """Show an operation and how far it is."""
        check_query(request, NOTHING)
        return json_answer(operation_view(await self._operation(request.match_info["id"])))

    async def stop_operation(self, request: web.Request, caller: Caller) -> web.Response:
        """Go on with an operation no further; what it did stays."""
        because = await self._read(request, Because)
        operation = await self._operation(request.match_info["id"])
        event = ev.DeadLettersStopped(operation_id=operation.id, **caller.signed(because.reason))
        await self._note(operation.id, event, f"stop {operation.id}")
        now_ms = await self._context.within(self._context.store.dead_letters.now_ms())
        work = self._context.store.letter_work
        ending = work.end(keys.SYSTEM, operation.id, lambda it: replace(it, done_ms=now_ms, is_stopped=True))
        ended = await self._context.within(ending)
        if ended is None:
            raise Problem("operation_not_found")
        return json_answer(operation_view(ended))

    async def _act(self, request: web.Request, caller: Caller, verb: Verb) -> web.Response:
        asked = await self._read(request, DeadLettersAct)
        wanted = LetterFilter() if asked.filter is None else _filter_of(asked.filter)
        key_hash = read_key(request.headers.get("Idempotency-Key"))
        operation = await self._made(asked, wanted, verb, caller, key_hash)
        if asked.dry_run:
            return await self._count(operation, asked.cursor)
        await self._note(operation.id, _requested(operation, caller), operation.id)
        if not await self._context.within(self._context.store.letter_work.ask(keys.SYSTEM, operation)):
            policies = {POLICIES: ["operations"]}
            raise Problem("quota_exceeded", "Too many operations are under way; wait for one", extensions=policies)
        known = await self._operation(operation.id)
        if known.fingerprint != operation.fingerprint:
            raise Problem("idempotency_mismatch")
        return json_answer(operation_view(known), 202, {"Location": f"/admin/v1/dlq/operations/{known.id}"})

    async def _made(
        self, asked: DeadLettersAct, wanted: LetterFilter, verb: Verb, caller: Caller, key_hash: str | None
    ) -> Operation:  # fmt: skip
        now_ms = await self._context.within(self._context.store.dead_letters.now_ms())
        until_ms = min(wanted.until_ms or now_ms + 1, now_ms + 1)  # what fails from here on is another matter
        request = asked.model_dump_json(exclude={"cursor"})
        digest = hashlib.sha256(f"{verb}\n{request}".encode()).hexdigest()
        name = self._mint.token()
        if key_hash is not None:
            name = hashlib.sha256(f"{caller.key_id}\n{key_hash}".encode()).hexdigest()[:26]
        return Operation(
            f"op_{name}", verb, caller.key_id, asked.reason, asked.rate_per_second, replace(wanted, until_ms=until_ms),
            None if asked.ids is None else tuple(dict.fromkeys(asked.ids)), digest, now_ms,
        )  # fmt: skip

    async def _count(self, operation: Operation, cursor: str | None) -> web.Response:
        if operation.ids is not None:
            shown = [await self._reader.find_any(job_id) for job_id in operation.ids]
            letters = [await self._letter(each) for each in shown if each is not None and each.state.dead_lettered]
            return json_answer(count_view(operation, letters, None))
        question = f"dlq dry run\n{operation.verb}\n{operation.fingerprint}"
        found, place = await self._finder.behind(operation.wanted, self._at(question, cursor), MOST_SCANNED)
        next_cursor = self._cursor(question, place and _text(place))
        return json_answer(count_view(operation, [letter for _, letter in found], next_cursor))

    async def _letter(self, shown: Shown) -> DeadLetter:
        history = await self._reader.history(shown, 0)
        return _letter_of(shown, has_body=bool(history.body))

    async def _need(self, job_id: str) -> Shown:
        shown = await self._reader.find_any(job_id)
        if shown is None:
            meta = self._context.pool_of(job_id)
            letters = self._context.store.dead_letters
            if meta is not None and await self._context.within(letters.is_forgotten(meta.name, job_id)):
                raise Problem("data_erased", "The job was forgotten: its retention is over")
            raise Problem("dead_letter_not_found", "There is no such job, or its retention is over")
        if not shown.state.dead_lettered:
            raise Problem("dead_letter_not_found", f"The job is {shown.state.status}, and no dead letter")
        return shown

    async def _operation(self, operation_id: str) -> Operation:
        known = await self._context.within(self._context.store.letter_work.all(keys.SYSTEM))
        found = next((each for each in known if each.id == operation_id), None)
        if found is None:
            raise Problem("operation_not_found", "There is none, or it was over a day ago")
        return found

    async def _note(self, subject: str, event: ev.Event, write_id: str) -> None:
        pool = next(iter(self._context.pools), "")
        await self._context.within(self._context.store.note(pool, subject, event, write_id))

    def _at(self, question: str, cursor: str | None) -> Place:
        text = self._place(question, cursor)
        if not text:
            return START
        pool, failed_ms, job_id = text.split(" ")
        return pool, int(failed_ms), job_id


def _text(place: Place) -> str:
    return " ".join(map(str, place))


def _filter_of(asked: DeadLettersFilter) -> LetterFilter:
    since_ms, until_ms = ms_of(asked.since), ms_of(asked.until)
    # 0 means no end, and nothing failed in 1970: an end before all of it must not become none
    until_ms = 0 if until_ms is None else max(1, until_ms)
    return LetterFilter(
        asked.pool or "", asked.tenant_id or "", asked.model or "", asked.code or "", max(0, since_ms or 0), until_ms
    )  # fmt: skip


def _letter_of(shown: Shown, *, has_body: bool) -> DeadLetter:
    state = shown.state
    return DeadLetter(
        state.id, state.done_ms or 0, has_body, state.tenant_id, state.model, state.error_code or "",
        state.attempt, state.run, state.created_ms,
    )  # fmt: skip


def _requested(operation: Operation, caller: Caller) -> ev.DeadLettersRequested:
    wanted = operation.wanted
    return ev.DeadLettersRequested(
        operation_id=operation.id, verb=operation.verb, rate=operation.rate,
        ids_count=None if operation.ids is None else len(operation.ids), pool=wanted.pool or None,
        tenant_id=wanted.tenant_id or None, model=wanted.model or None, code=wanted.code or None,
        since_ms=wanted.since_ms or None, until_ms=wanted.until_ms or None,
        **caller.signed(operation.reason),
    )  # fmt: skip
