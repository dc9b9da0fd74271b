"""One submission of a caller, alone or as an item of a batch: from a valid shape to a durable job, and back to a view.

Promises: every submission passes the same checks and limits, however it arrived.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

from contracts.api import GenerationJobData
from contracts.errors import HeadraceError
from contracts.file_inputs import ARTIFACTS
from contracts.model_spec import ModelSpec, predict_vram
from contracts.profiles import Prediction
from contracts.reproduction import Pins
from contracts.store.jobs import Limits
from contracts.store.replies import Submits
from services.ingest.admission.admit import Admitted, Submission, admit
from services.ingest.admission.draft import Draft, Origin, check, make_draft
from services.ingest.admission.input_files import find, judge
from services.ingest.admission.verdict import limits_for
from services.ingest.context import Context
from services.ingest.edge.problems import Fault, Problem
from services.ingest.handlers.read import JobReader
from services.ingest.minting import Mint
from services.ingest.requests import fingerprint, invalid_input, run_at_ms
from services.ingest.targets import check_target
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.jobs import fresh_view
from services.ingest.views.rates import rate_headers

_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Envelope(NamedTuple):
    """What comes beside the body: who asks, under which Idempotency-Key, as part of which trace."""

    caller: Caller
    key_hash: str | None = None
    traceparent: str = ""


class Submitted(NamedTuple):
    """A submission that stands for a durable job."""

    envelope: Envelope
    draft: Draft
    admitted: Admitted


class Submissions:
    """Everything a submission needs."""

    def __init__(self, context: Context, reader: JobReader) -> None:
        self._context = context
        self._reader = reader
        self._mint = Mint(context.now_ms)

    async def submit(
        self, envelope: Envelope, data: GenerationJobData, pins: Pins | None = None, refused: Problem | None = None
    ) -> Submitted:  # fmt: skip
        """Make the job durable. Raises Problem when it is refused or nobody knows, StoreUnavailable.

        `pins`: of the job that it is to give again; `refused`: why that cannot be now, though a repeat is answered.
        """
        context, caller = self._context, envelope.caller
        model = self._model(data, caller.tenant_id)
        pools: Mapping[str, str] = {}
        faults: tuple[Fault, ...] = ()
        if ARTIFACTS in data.input:
            pools, faults = await find(context.files, caller.tenant_id, data.input, context.now_ms())
        draft = await self._draft(envelope, data, model, pools, pins)
        seal = fingerprint(data, pins.job if pins else "") if envelope.key_hash is not None else ""
        code = context.readiness.refuses_admission(draft.pool)
        refused = refused or (invalid_input(faults) if faults else Problem(code) if code is not None else None)
        limits, own = limits_of(context, caller.tenant_id), data.policy.max_queue_length
        own = None if own is None or own >= limits.tenant_jobs else own
        submission = Submission(draft, caller.tenant_id, limits, envelope.key_hash, seal, own, refused)
        started_s = perf_counter()
        try:
            admitted = await admit(context, self._mint, submission)
        except Problem as problem:
            for policy in problem.policies:
                context.metrics.count_refused(policy)
            raise
        context.metrics.append_seconds.observe(perf_counter() - started_s)
        if not admitted.is_old:
            context.metrics.count_created(caller.tier, draft.created.model, data.priority)
        return Submitted(envelope, draft, admitted)

    async def view(self, submitted: Submitted, *, latest: bool = False) -> JsonObject:
        """Show the job: a new one as it was admitted (unless `latest`), another as it is now.

        What retention removed is known by its claim or its dedup key alone; that view says `expired`.
        """
        envelope, admitted = submitted.envelope, submitted.admitted
        if not admitted.is_old:
            return await self._latest(submitted) if latest else self._fresh(submitted)
        shown = await self._reader.find(envelope.caller, admitted.job_id)
        if shown is None:
            return self._forgotten(admitted)
        view = await self._reader.view(shown)
        if envelope.key_hash is not None and view["status"] != admitted.last_status:
            await self._reader.remember(envelope.caller, envelope.key_hash, admitted.job_id, view["status"])
        return view

    async def _latest(self, submitted: Submitted) -> JsonObject:
        """Show a new job as it is now. It is durable: when it cannot be read, the caller still hears of it."""
        try:
            shown = await self._reader.find(submitted.envelope.caller, submitted.admitted.job_id)
            return self._fresh(submitted) if shown is None else await self._reader.view(shown)
        except (HeadraceError, Problem):
            return self._fresh(submitted)

    def _fresh(self, submitted: Submitted) -> JsonObject:
        draft, admitted = submitted.draft, submitted.admitted
        place = self._context.place(self._context.pool(draft.pool))
        return fresh_view(draft.created, draft.spec, place, admitted.job_id, admitted.position, draft.run_at_ms)

    def _forgotten(self, admitted: Admitted) -> JsonObject:
        return {"id": admitted.job_id, "object": "job", "status": admitted.last_status, "expired": True}

    async def _needed(self, model: ModelSpec, pool: str, data: GenerationJobData) -> Prediction:
        """Return what the job needs of a device. Raises Problem if no device has that."""
        capacity = self._context.capacity
        needed = predict_vram(model, data.input, capacity.fleet(pool, model.reference))
        await capacity.check(pool, needed.least_bytes)
        room_bytes = capacity.room_for(pool, needed)
        return needed if room_bytes == needed.bytes else replace(needed, bytes=room_bytes)

    def _model(self, data: GenerationJobData, tenant_id: str) -> ModelSpec:
        """Return the model that is asked for, and may be in this way. Raises Problem."""
        context = self._context
        model = check(data, context.models.find(data.model))
        if data.webhook_url is not None:
            check_target(context, tenant_id, data.webhook_url, "/webhookUrl")
        faults = judge(model, data.input, context.settings.inputs.allow_private)
        if faults:
            raise invalid_input(faults)
        return model

    async def _draft(
        self, envelope: Envelope, data: GenerationJobData, model: ModelSpec, artifact_pools: Mapping[str, str],
        pins: Pins | None,
    ) -> Draft:  # fmt: skip
        context = self._context
        pool = data.pool or model.pools[0]
        origin = Origin(
            tenant_id=envelope.caller.tenant_id,
            user_key=context.secret("users"),
            dedup_key=context.secret("dedup"),
            seed_bits=self._mint.seed_bits(),
            salt=self._mint.salt(),
            traceparent=envelope.traceparent if _TRACEPARENT.fullmatch(envelope.traceparent) else None,
            key_hash=envelope.key_hash,
            pins=pins,
        )
        needed = await self._needed(model, pool, data)
        when_ms = run_at_ms(data, context.now_ms())
        return make_draft(data, model, pool, when_ms, origin, needed, artifact_pools)


def limits_of(context: Context, tenant_id: str) -> Limits:
    """Return the limits of one admission. Raises Problem `tenant_suspended`."""
    tenant = context.store.directory.configuration.tenants.get(tenant_id)
    if tenant is None:
        raise Problem("tenant_suspended", "The tenant does not exist")
    return limits_for(tenant.limits, context.settings.admission)


def rates_of(context: Context, caller: Caller, submits: Submits | None) -> dict[str, str]:
    """Return the header fields that tell the caller its rates, and what is left of them."""
    tenant = context.store.directory.configuration.tenants.get(caller.tenant_id)
    return {} if tenant is None else rate_headers(tenant.limits, submits)
