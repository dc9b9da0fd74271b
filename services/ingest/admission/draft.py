"""A valid request as what will be written: the body of the job and its first events.

Promises: what is stored is complete (the drawn seed, the model's full name, the events subscribed to), so the job can
be run, shown and reproduced from it alone; the log gets digests and scheduling facts, never the caller's words.
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import orjson

from contracts import events as ev
from contracts.api import GenerationJobData, JobDedup
from contracts.file_inputs import ARTIFACT_POOLS
from contracts.model_spec import ModelSpec, bucket_of, check_input, draw_seed
from contracts.profiles import Prediction
from contracts.reproduction import PINS, Pins
from contracts.store.jobs import Dedup
from contracts.store.write import Write
from services.ingest.edge.problems import Fault
from services.ingest.requests import invalid_input
from services.ingest.views.body_lines import JsonObject


class Origin(NamedTuple):
    """Who asks, and the chance and secrets a draft needs."""

    tenant_id: str
    user_key: bytes
    dedup_key: bytes
    seed_bits: int
    salt: str
    traceparent: str | None = None
    key_hash: str | None = None
    pins: Pins | None = None  # of the job that is to be given again


class Draft(NamedTuple):
    """A job that is ready to be admitted."""

    created: ev.JobCreated
    spec: JsonObject
    body: bytes
    pool: str
    run_at_ms: int | None
    dedup: Dedup | None = None
    files: tuple[str, ...] = ()  # the stored files it names

    def write(self, job_id: str) -> Write:
        """Return the write that admits it under this id."""
        hooked = frozenset(self.created.webhook_events or ())
        events = (self.created,)
        if self.run_at_ms is None:
            return Write(job_id, events, hooked=hooked)
        return Write(job_id, (*events, ev.JobScheduled(run_at_ms=self.run_at_ms)), hooked=hooked)


def make_draft(
    data: GenerationJobData, model: ModelSpec, pool: str, run_at_ms: int | None, origin: Origin, needed: Prediction,
    artifact_pools: Mapping[str, str],
) -> Draft:  # fmt: skip
    """Write down a request that `check` found in order."""
    policy = data.policy
    webhook_events = _subscribed(data)
    timeout_s = policy.execution_timeout_seconds or model.timeout_s
    spec: JsonObject = {
        "prompt": data.prompt,
        "input": draw_seed(model, data.input, origin.seed_bits),
        "userId": data.user_id,
        "model": model.reference,
        "pool": pool,
        "metadata": data.metadata,
        "salt": origin.salt,
    }
    if webhook_events is not None:
        spec |= {"webhookUrl": data.webhook_url, "webhookEvents": webhook_events}
    if origin.pins is not None:
        spec[PINS] = origin.pins.model_dump(mode="json", by_alias=True, exclude_none=True)
    if artifact_pools:
        spec[ARTIFACT_POOLS] = artifact_pools
    body = orjson.dumps(spec)
    dedup = None if data.dedup is None else _dedup(data.dedup, origin)
    created = ev.JobCreated(
        tenant_id=origin.tenant_id,
        model=model.reference,
        priority=data.priority,
        max_attempts=policy.max_attempts,
        timeout_ms=int(timeout_s * 1000),
        start_by_ms=None if policy.start_by_seconds is None else policy.start_by_seconds * 1000,
        vram_bytes=needed.bytes,
        alone=needed.alone or None,
        bucket=bucket_of(model, data.input),
        # one pass of several computes other bytes than one of one, and nobody would be there to fill it again
        max_batch=model.max_batch if model.max_batch > 1 and origin.pins is None else None,
        resources=dict(model.resources) or None,
        body_bytes=len(body),
        body_digest=hashlib.sha256(body).hexdigest(),  # salted by the salt inside the body
        user_digest=user_digest(origin.user_key, data.user_id),
        key_hash=origin.key_hash,
        dedup_hash=dedup.hash if dedup is not None and not dedup.ttl_ms else None,
        webhook_events=webhook_events,
        traceparent=origin.traceparent,
        reproduces=origin.pins.job if origin.pins is not None else None,
    )
    return Draft(created, spec, body, pool, run_at_ms, dedup, tuple(artifact_pools))


def user_digest(key: bytes, user_id: str) -> str:
    """Return what the log says of an end user: the same for the same one, and nothing else."""
    return hashlib.blake2b(user_id.encode(), key=key, digest_size=16).hexdigest()


def _dedup(asked: JobDedup, origin: Origin) -> Dedup:
    """Return what holds the key; a digest under a secret, because such keys tend to name people."""
    text = f"{origin.tenant_id}\n{asked.key}".encode()
    digest = hashlib.blake2b(text, key=origin.dedup_key, digest_size=16).hexdigest()
    return Dedup(digest, asked.ttl_seconds * 1000 if asked.mode == "ttl" else 0)


def check(data: GenerationJobData, model: ModelSpec | None) -> ModelSpec:
    """Judge what the shape cannot say. Raises Problem with every fault found."""
    if model is None:
        raise invalid_input(
            (Fault("/model", "unknown_model", "there is no such model or version; GET /v1/models lists them"),)
        )
    faults = [Fault(each.pointer, each.code, each.message) for each in check_input(model, data.prompt, data.input)]
    if data.pool is not None and data.pool not in model.pools:
        faults.append(Fault("/pool", "unknown_pool", "the model does not run in this pool"))
    if faults:
        raise invalid_input(tuple(faults))
    return model


def _subscribed(data: GenerationJobData) -> tuple[str, ...] | None:
    if data.webhook_url is None:
        return None
    return tuple(dict.fromkeys(data.webhook_events or ev.DEFAULT_WEBHOOK_EVENTS))
