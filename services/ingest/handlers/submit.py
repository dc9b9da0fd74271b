"""`POST /v1/jobs`: from bytes to a durable job."""

import re
from collections.abc import Mapping, Sequence
from time import perf_counter

from aiohttp import web

from contracts.api import GenerationJobData
from contracts.store.jobs import Limits
from services.ingest.admission.admit import Admitted, Submission, admit, read_key
from services.ingest.admission.draft import Draft, Origin, check, make_draft
from services.ingest.admission.verdict import limits_for
from services.ingest.context import Context
from services.ingest.edge.body import read_body
from services.ingest.edge.conditional import etag
from services.ingest.edge.headers import only_header
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import json_answer
from services.ingest.handlers.read import JobReader, Shown
from services.ingest.minting import Mint
from services.ingest.requests import fingerprint, parse_body, run_at_ms
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.jobs import fresh_view
from services.ingest.watch import JobWatch

MAX_WAIT_S = 60
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_WAIT = re.compile(r"\s*wait\s*=\s*(\d{1,6})\s*", re.ASCII | re.IGNORECASE)


class SubmitHandler:
    """Everything a submission needs."""

    def __init__(self, context: Context, reader: JobReader, watch: JobWatch) -> None:
        self._context = context
        self._reader = reader
        self._watch = watch
        self._mint = Mint(context.now_ms)

    async def submit(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Admit a job; 201 once it is durable, 200 for a repeat, 200 or 202 when the caller waits."""
        wait_s = read_wait(request.headers.getall("Prefer", ()))
        key_hash = read_key(only_header(request, "Idempotency-Key"))
        with self._context.room.share() as share:
            raw = await read_body(request, self._context.body_limits, share)
            data = parse_body(GenerationJobData, raw)
            draft = self._draft(request, caller, data, key_hash)
            seal = fingerprint(data) if key_hash is not None else ""
            refused = self._context.readiness.refuses_admission(draft.pool)
            submission = Submission(draft, caller.tenant_id, self._limits(caller), key_hash, seal, refused)
            started_s = perf_counter()
            try:
                admitted = await admit(self._context, self._mint, submission)
            except Problem as problem:
                for policy in problem.policies:
                    self._context.metrics.count_refused(policy)
                raise
            self._context.metrics.append_seconds.observe(perf_counter() - started_s)
        if not admitted.is_repeat:
            self._context.metrics.count_created(caller.tier, draft.created.model, data.priority)
        if wait_s is not None:
            return await self._answer_when_ended(caller, draft, admitted, wait_s)
        if admitted.is_repeat:
            return await self._answer_repeat(caller, admitted, key_hash)
        return _answer(self._fresh(draft, admitted), 201)

    def _draft(self, request: web.Request, caller: Caller, data: GenerationJobData, key_hash: str | None) -> Draft:
        context = self._context
        model = check(data, context.models.find(data.model), context.settings.webhook.allow_private)
        pool = data.pool or model.pools[0]
        traceparent = request.headers.get("traceparent", "")
        origin = Origin(
            tenant_id=caller.tenant_id,
            user_key=context.secret("users"),
            seed_bits=self._mint.seed_bits(),
            salt=self._mint.salt(),
            traceparent=traceparent if _TRACEPARENT.fullmatch(traceparent) else None,
            key_hash=key_hash,
        )
        return make_draft(data, model, pool, run_at_ms(data, context.now_ms()), origin)

    def _limits(self, caller: Caller) -> Limits:
        tenant = self._context.store.directory.configuration.tenants.get(caller.tenant_id)
        if tenant is None:
            raise Problem("tenant_suspended", "The tenant of this key does not exist")
        return limits_for(tenant.limits, self._context.settings.admission)

    def _fresh(self, draft: Draft, admitted: Admitted) -> JsonObject:
        place = self._context.place(self._context.pool(draft.pool))
        return fresh_view(draft.created, draft.spec, place, admitted.job_id, admitted.position, draft.run_at_ms)

    async def _answer_repeat(self, caller: Caller, admitted: Admitted, key_hash: str | None) -> web.Response:
        """Show the job as it is now; what retention removed is known by its claim alone."""
        shown = await self._reader.find(caller, admitted.job_id)
        if shown is None:
            body = {"id": admitted.job_id, "object": "job", "status": admitted.last_status, "expired": True}
            return json_answer(body, headers={"Idempotent-Replayed": "true"})
        view = await self._reader.view(shown)
        if key_hash is not None and view["status"] != admitted.last_status:
            await self._reader.remember(caller, key_hash, admitted.job_id, view["status"])
        return _answer(view, 200, {"Idempotent-Replayed": "true"})

    async def _answer_when_ended(self, caller: Caller, draft: Draft, admitted: Admitted, wait_s: int) -> web.Response:
        has_ended = await self._watch.wait(draft.pool, admitted.job_id, wait_s)
        shown: Shown | None = await self._reader.find(caller, admitted.job_id)
        view = self._fresh(draft, admitted) if shown is None else await self._reader.view(shown)
        headers = {"Preference-Applied": f"wait={wait_s}"}
        if admitted.is_repeat:
            headers["Idempotent-Replayed"] = "true"
        return _answer(view, 200 if has_ended else 202, headers)


def read_wait(preferences: Sequence[str]) -> int | None:
    """Return the seconds of `Prefer: wait=N`, capped; None without one (RFC 7240).

    >>> read_wait(["respond-async", "wait=90"])
    60
    """
    for text in ",".join(preferences).split(","):
        match = _WAIT.fullmatch(text)
        if match is not None:
            return min(MAX_WAIT_S, int(match[1]))
    return None


def _answer(view: JsonObject, status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    links = {"Location": f"/v1/jobs/{view['id']}", "ETag": etag(view["sequence"])}
    return json_answer(view, status, links | dict(headers or {}))
