"""The catalogue of events as callers read it: what each says, its JSON Schema, an example; and the AsyncAPI document.

Promises: made of the models and of the golden files, so that neither can say what is not so; nothing is in it that
tenants are not shown. Reads the golden files once.
"""

from functools import cache
from pathlib import Path
from typing import Any

import orjson
from pydantic.json_schema import models_json_schema

from contracts.envelope import Origin, event_view, without_inside
from contracts.events import CATALOGUE, DEFAULT_WEBHOOK_EVENTS, OPERATIONAL_EVENTS, WEBHOOK_EVENTS
from contracts.job import JobState
from contracts.wire import Entry, decode

JsonObject = dict[str, Any]

GOLDEN = Path(__file__).parent / "golden" / "events"
POSITION = "1764457200123-0"
_REFS = "#/components/schemas/{model}"
_STREAMS = {
    "job": ("/v1/jobs/{id}/stream", "The events of one job, as server-sent events."),
    "tenant": ("/v1/stream", "The events of all jobs of the tenant, as server-sent events."),
    "socket": (
        "/v1/ws",
        'What a client subscribes to, over a WebSocket (jobs.v1.json), each event in a frame {"op":"event","channel",'
        '"position","event"}; the other frames are told of in contracts/README.md.',
    ),
    "export": ("/v1/events/export", "The events of all jobs of the tenant, as lines of JSON."),
}


@cache
def event_types() -> dict[str, JsonObject]:
    """Return what is said of each type, by type."""
    return {name: _about(name) for name in sorted(CATALOGUE)}


@cache
def event_type(name: str) -> JsonObject | None:
    """Return a type with its schema and an example; None for one that there is not."""
    about = event_types().get(name)
    if about is None:
        return None
    schema = CATALOGUE[name].model_json_schema(by_alias=True)
    return about | {"schema": _shown(name, schema), "example": _example(name)}


@cache
def asyncapi(version: str) -> JsonObject:
    """Return the AsyncAPI document of what is streamed about jobs."""
    names = sorted(WEBHOOK_EVENTS)
    models = [(CATALOGUE[name], "serialization") for name in names]
    _, definitions = models_json_schema(models, by_alias=True, ref_template=_REFS)  # type: ignore[arg-type]
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Headrace", "version": version, "description": "What happens to jobs, as it happens."},
        "defaultContentType": "application/json",
        "channels": {
            stream: {
                "address": address,
                "description": about,
                "parameters": {"id": {"description": "Id of the job."}} if "{id}" in address else {},
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
            }
            for stream, (address, about) in _STREAMS.items()
        },
        "operations": {
            f"read_{stream}": {"action": "send", "channel": {"$ref": f"#/channels/{stream}"}} for stream in _STREAMS
        },
        "components": {
            "messages": {name: _message(name) for name in names},
            "schemas": {
                name: _shown(_type_named(name), schema) for name, schema in definitions.get("$defs", {}).items()
            },
        },
    }


def _about(name: str) -> JsonObject:
    model = CATALOGUE[name]
    webhook = "default" if name in DEFAULT_WEBHOOK_EVENTS else "optional" if name in WEBHOOK_EVENTS else None
    return {
        "type": name,
        "version": model.VERSION,
        "about": " ".join((model.__doc__ or "").split()),
        "webhook": "operational" if name in OPERATIONAL_EVENTS else webhook,
    }


def _message(name: str) -> JsonObject:
    model = CATALOGUE[name]
    record = {
        "type": "object",
        "required": ["id", "type", "version", "position", "time", "subject", "data"],
        "properties": {
            **{text: {"type": "string"} for text in ("id", "position", "time", "subject", "tenantId", "source")},
            "type": {"const": name},
            "version": {"type": "integer"},
            "sequence": {"type": "integer"},
            "data": {"$ref": _REFS.format(model=model.__name__)},
        },
    }
    return {
        "name": name,
        "summary": _about(name)["about"],
        "payload": record,
        "examples": [{"payload": _example(name)}],
    }


def _example(name: str) -> JsonObject:
    """Return the event of the golden file as a record."""
    entry = decode(POSITION, orjson.loads((GOLDEN / f"{name}.v{CATALOGUE[name].VERSION}.json").read_bytes()))
    assert isinstance(entry, Entry)
    state = JobState(entry.subject, sequence=entry.sequence, tenant_id="t_acme", attempt=1)
    return event_view(entry, state, state, Origin("aa", 1, "https://gen.example"))


def _type_named(model: str) -> str:
    return next((name for name, each in CATALOGUE.items() if each.__name__ == model), "")


def _shown(name: str, schema: JsonObject) -> JsonObject:
    """Leave out of a schema what tenants are not shown."""
    properties = without_inside(name, schema.get("properties", {}))
    return schema | {"properties": properties} if "properties" in schema else schema
