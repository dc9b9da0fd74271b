"""What a test of an endpoint sends: the body of a completed job that never was, in the endpoint's format. Pure."""

import orjson

from contracts.api import WebhookPayload
from contracts.events import WebhookFormat
from contracts.ids import event_id
from contracts.positions import Position
from contracts.times import instant
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.jobs import Place

TEST_EVENT = "webhook.test"


def ping(form: WebhookFormat, endpoint_id: str, tenant_id: str, job_id: str, at_ms: int, place: Place) -> str:
    """Return the body; `data.test` says that the job is none."""
    payload = WebhookPayload(
        type=TEST_EVENT,
        timestamp=instant(at_ms) or "",
        job_id=job_id,
        status="completed",
        progress=100,
        sequence=1,
        position=str(Position(place.code, place.epoch, f"{at_ms}-0")),
        tenant_id=tenant_id,
        data={"test": True, "endpointId": endpoint_id},
    ).model_dump(mode="json")
    flat = {name: payload[name] for name in ("jobId", "status", "progress", "resultUrl")}
    match form:
        case "flat":
            return orjson.dumps(flat).decode()
        case "cloudevents":
            told = {name: payload[name] for name in ("sequence", "position", "tenantId", "data")}
            return orjson.dumps(_envelope(job_id, payload["timestamp"]) | {"data": flat | told}).decode()
        case _:
            return orjson.dumps(payload).decode()


def _envelope(job_id: str, time: str) -> JsonObject:
    return {
        "specversion": "1.0",
        "id": event_id(job_id, 1),
        "type": TEST_EVENT,
        "source": "ingest",
        "subject": job_id,
        "time": time,
        "datacontenttype": "application/json",
        "recordedtime": time,
        "sequence": "0000000001",
        "partitionkey": job_id,
    }
