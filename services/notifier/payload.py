"""The webhook body: one event of a job as exact bytes, ready to be stored once and signed on every try.

Promises: valid JSON in the shape of `WebhookPayload`, never above `BODY_BYTES_MAX`; what does not fit is left
out whole, largest part first, and `data.truncated` and `data.omitted` say so; the top-level fields always
stay, so the receiver can fetch the rest by `jobId` or `resultUrl`.
Does not promise: the result itself. A webhook carries links, never pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import get_args

import orjson

from contracts.api import JobStatus, WebhookPayload
from contracts.signed_url import sign_path

BODY_BYTES_MAX = 20_000
STATUSES: frozenset[str] = frozenset(get_args(JobStatus))


@dataclass(frozen=True, slots=True)
class Notice:
    """What a webhook tells: the event, and the job as it was right after it."""

    event_type: str
    event_at_ms: int
    job_id: str
    status: JobStatus
    progress: float
    sequence: int
    position: str
    tenant_id: str
    result_url: str | None = None
    data: Mapping[str, object] = field(default_factory=dict)
    event_id: str = ""
    source: str = ""
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """What a webhook tells of another endpoint of the tenant."""

    event_id: str
    event_type: str
    event_at_ms: int
    endpoint_id: str
    position: str
    tenant_id: str
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Links:
    """Where stored paths are served. A link to what expires opens without a key until then.

    So a handler that knows nothing but `resultUrl` can show the picture, also when the webhook came two days late.
    """

    public_url: str
    secret: bytes

    def to(self, path: str, expires_at_ms: object) -> str:
        """Return the link to a path; without an expiry it opens with a key only."""
        signed = sign_path(self.secret, path, expires_at_ms // 1000) if isinstance(expires_at_ms, int) else path
        return self.public_url.rstrip("/") + signed


def render(notice: Notice) -> bytes:
    """Return the body as it is to be signed and sent."""
    return fit(partial(_encode, notice), dict(notice.data))


def fit(encode: Callable[[dict[str, object]], bytes], data: dict[str, object]) -> bytes:
    """Return `data` encoded, without its largest members if it would be too long otherwise."""
    body = encode(data)
    if len(body) <= BODY_BYTES_MAX:
        return body
    body = encode(_cut(data, len(body) - BODY_BYTES_MAX))
    return body if len(body) <= BODY_BYTES_MAX else encode({"truncated": True})


def public_facts(facts: Mapping[str, object], links: Links) -> dict[str, object]:
    """Turn what an event stores into what people read: `path` into the `url` it is served at, `xAtMs` into `xAt`.

    Only the event's own members and those of its artifacts: what authors and callers wrote stays as it is.
    """
    return dict(_public_member(key, value, facts, links) for key, value in facts.items())


def rfc3339(at_ms: int) -> str:
    """Write a wall time as RFC 3339 in UTC with milliseconds.

    >>> rfc3339(1764457209999)
    '2025-11-29T23:00:09.999Z'
    """
    moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def _encode(notice: Notice, data: dict[str, object]) -> bytes:
    payload = WebhookPayload(
        type=notice.event_type,
        timestamp=rfc3339(notice.event_at_ms),
        job_id=notice.job_id,
        status=notice.status,
        progress=notice.progress,
        result_url=notice.result_url,
        sequence=notice.sequence,
        position=notice.position,
        tenant_id=notice.tenant_id,
        data=data,
    )
    return orjson.dumps(payload.model_dump())


def _cut(data: dict[str, object], excess_bytes: int) -> dict[str, object]:
    """Leave out whole members, largest first, until `excess_bytes` and the note about it are made up for.

    A list or text cut in the middle would look complete to its reader.
    """
    sizes = {key: len(orjson.dumps(value)) for key, value in data.items()}
    omitted: list[str] = []
    for key in sorted(sizes, key=lambda name: (-sizes[name], name)):
        if excess_bytes + _note_bytes(omitted) <= 0:
            break
        omitted.append(key)
        excess_bytes -= sizes[key]
    kept = {key: value for key, value in data.items() if key not in omitted}
    return {**kept, "truncated": True, "omitted": sorted(omitted)}


def _note_bytes(omitted: list[str]) -> int:
    return len(orjson.dumps({"truncated": True, "omitted": omitted}))


def _public_member(key: str, value: object, facts: Mapping[str, object], links: Links) -> tuple[str, object]:
    if key == "path" and isinstance(value, str):
        return "url", links.to(value, facts.get("expiresAtMs"))
    if key.endswith("AtMs") and isinstance(value, int):
        return key.removesuffix("Ms"), rfc3339(value)
    if key == "artifact" and isinstance(value, Mapping):
        return key, public_facts(value, links)
    if key in ("artifacts", "partialArtifacts") and isinstance(value, list):
        return key, [public_facts(artifact, links) for artifact in value]
    return key, value
