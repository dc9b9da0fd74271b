"""The formats of webhooks: `standard`, `flat` and `cloudevents`. Pure.

Promises: `flat` is exactly the four fields of the user's `WebhookPayload`; `cloudevents` is a CloudEvent 1.0 in
structured mode whose `data` is the standard body without what the envelope says; none is above `BODY_BYTES_MAX`.
"""

from typing import Any

import orjson

from contracts.events import WebhookFormat
from services.notifier.payload import Notice, Operation, fit, render, rfc3339

JSON = "application/json"
SEQUENCE_DIGITS = 10  # the extension compares as text


def write(notice: Notice, form: WebhookFormat) -> str:
    """Return the body about a job."""
    if form == "flat":
        return orjson.dumps(_four_fields(notice)).decode()
    if form == "cloudevents":
        return fit(lambda data: orjson.dumps(_cloud_event(notice, data)), dict(notice.data)).decode()
    return render(notice).decode()


def write_operation(told: Operation, form: WebhookFormat) -> str:
    """Return the body about an endpoint; `flat` has no place for one."""
    body: dict[str, Any] = {"endpointId": told.endpoint_id, "tenantId": told.tenant_id, "position": told.position}
    if form == "cloudevents":
        about = _envelope(told, "notifier", told.endpoint_id) | {"partitionkey": told.endpoint_id}
        return fit(lambda data: orjson.dumps(about | {"data": body | {"data": data}}), dict(told.data)).decode()
    about = {"type": told.event_type, "timestamp": rfc3339(told.event_at_ms)} | body
    return fit(lambda data: orjson.dumps(about | {"data": data}), dict(told.data)).decode()


def _four_fields(notice: Notice) -> dict[str, Any]:
    return {
        "jobId": notice.job_id,
        "status": notice.status,
        "progress": notice.progress,
        "resultUrl": notice.result_url,
    }


def _cloud_event(notice: Notice, data: dict[str, object]) -> dict[str, Any]:
    extensions = {"sequence": f"{notice.sequence:0{SEQUENCE_DIGITS}}", "partitionkey": notice.job_id}
    if notice.traceparent is not None:
        extensions["traceparent"] = notice.traceparent
    told = {"sequence": notice.sequence, "position": notice.position, "tenantId": notice.tenant_id, "data": data}
    return _envelope(notice, notice.source, notice.job_id) | extensions | {"data": _four_fields(notice) | told}


def _envelope(told: Notice | Operation, source: str, subject: str) -> dict[str, Any]:
    time = rfc3339(told.event_at_ms)
    return {
        "specversion": "1.0",
        "id": told.event_id,
        "type": told.event_type,
        "source": source,
        "subject": subject,
        "time": time,
        "datacontenttype": JSON,
        "recordedtime": time,
    }
