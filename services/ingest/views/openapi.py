"""The OpenAPI document, made of the route table and the models; what is not in them is not in it.

Promises: every route that is served is in it with its body, answers, problems and scope, and nothing else is. Pure:
the table comes in, a document comes out.
"""

import re
from collections.abc import Iterable, Sequence

from pydantic.json_schema import models_json_schema

from services.ingest.edge.problems import CATALOGUE
from services.ingest.routes import Parameter, Route
from services.ingest.views.body_lines import JsonObject
from services.ingest.views.schemas import ProblemDocument

_IN_PATH = re.compile(r"\{(\w+)\}")
_REFS = "#/components/schemas/{model}"
# What the outermost layers may answer on any route.
_ANYWHERE = ("bad_request", "request_timeout", "overloaded", "internal")
_WITH_KEY = ("unauthenticated", "missing_scope", "log_unavailable")
_WITH_BODY = ("malformed_json", "payload_too_large", "unsupported_media_type", "invalid_input", "unknown_field")


def openapi(routes: Sequence[Route], version: str) -> JsonObject:
    """Return the document."""
    bodies = {route.body for route in routes if route.body is not None}
    replies = {route.reply for route in routes if route.reply is not None} | {ProblemDocument}
    names = [(model, "validation") for model in sorted(bodies, key=lambda model: model.__name__)]
    names += [(model, "serialization") for model in sorted(replies, key=lambda model: model.__name__)]
    _, definitions = models_json_schema(names, ref_template=_REFS)  # type: ignore[arg-type]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace", "version": version, "description": "Generation jobs: submit, follow, fetch."},
        "paths": _paths(routes),
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths(routes: Iterable[Route]) -> JsonObject:
    paths: JsonObject = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return paths


def _operation(route: Route) -> JsonObject:
    operation: JsonObject = {
        "operationId": route.handler.__name__,
        "summary": route.about,
        "parameters": [*_path_parameters(route.path), *map(_parameter, route.parameters)],
        "responses": _responses(route),
    }
    if route.scope is not None:
        operation["security"] = [{"key": []}]
        operation["x-scope"] = route.scope
    if route.body is not None:
        schema = {"$ref": _REFS.format(model=route.body.__name__)}
        operation["requestBody"] = {"required": route.needs_body, "content": {"application/json": {"schema": schema}}}
    return operation


def _path_parameters(path: str) -> list[JsonObject]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in _IN_PATH.findall(path)
    ]


def _parameter(parameter: Parameter) -> JsonObject:
    kind: JsonObject = {"type": parameter.kind}
    schema = {"type": "array", "items": kind} if parameter.repeats else kind
    return {"name": parameter.name, "in": parameter.place, "description": parameter.about, "schema": schema}


def _responses(route: Route) -> JsonObject:
    answers: JsonObject = {}
    for status, about in route.replies:
        answers[str(status)] = {"description": about}
        if status not in (204, 304):
            answers[str(status)]["content"] = {route.media_type: {"schema": _reply_schema(route)}}
    for status, codes in sorted(_problems(route).items()):
        answers[str(status)] = {
            "description": "Problem: " + ", ".join(codes),
            "content": {"application/problem+json": {"schema": {"$ref": _REFS.format(model=ProblemDocument.__name__)}}},
        }
    return answers


def _reply_schema(route: Route) -> JsonObject:
    if route.reply is None:
        return {} if route.media_type == "application/json" else {"type": "string"}
    return {"$ref": _REFS.format(model=route.reply.__name__)}


def _problems(route: Route) -> dict[int, list[str]]:
    codes = [*route.problems, *_ANYWHERE]
    codes += _WITH_KEY if route.scope is not None else ()
    codes += _WITH_BODY if route.body is not None else ()
    by_status: dict[int, list[str]] = {}
    for code in sorted(set(codes)):
        by_status.setdefault(CATALOGUE[code].status, []).append(code)
    return {status: found for status, found in by_status.items() if status not in dict(route.replies)}
