"""What anybody may read about this service without a key: event types, AsyncAPI, and the page that shows OpenAPI.

Promises: the page loads nothing from anywhere else, and may run nothing that is not served here.
"""

import hashlib
from collections.abc import Callable
from importlib import resources
from typing import Any

import orjson
from aiohttp import web

from contracts.event_types import asyncapi, event_type, event_types
from services.ingest.edge.conditional import etag, is_unchanged
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.info import InfoHandlers

_NOTHING: frozenset[str] = frozenset()
_UI = "vendor/swagger-ui-4.15.5"
_SCRIPT, _STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
_FILES = {"swagger-ui-bundle.js": _SCRIPT, "swagger-ui.css": _STYLE}
_PAGE = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Headrace API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css"></head>
<body><div id="ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script><script src="/docs/start.js"></script></body></html>
"""
_START = b"""SwaggerUIBundle({url: "/docs/openapi.json", dom_id: "#ui", deepLinking: true, validatorUrl: null});
"""
# Its styles are set by script; a page of ours that asks for keys must not be shown inside another.
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

# Words of 3.1 that 3.0 does not have, and what it says instead.
_OLDER: dict[str, Callable[[Any], dict[str, Any]]] = {
    "const": lambda value: {"enum": [value]},
    "examples": lambda values: {"example": values[0]},
    "patternProperties": lambda by_pattern: {"additionalProperties": next(iter(by_pattern.values()))},
    "propertyNames": lambda _: {},
}


class DocumentHandlers:
    """Answers from memory."""

    def __init__(self, info: InfoHandlers, version: str) -> None:
        self._info, self._version = info, version
        self._kept: dict[str, bytes] = {}

    async def list_event_types(self, request: web.Request) -> web.Response:
        """List the types of events."""
        check_query(request, _NOTHING)
        return json_answer({"data": [*event_types().values()], "hasMore": False, "nextCursor": None})

    async def get_event_type(self, request: web.Request) -> web.Response:
        """Show a type with the JSON Schema of its data and an example."""
        check_query(request, _NOTHING)
        found = event_type(request.match_info["type"])
        if found is None:
            raise Problem("event_type_not_found", "They are listed at /v1/event-types")
        return json_answer(found)

    async def asyncapi_document(self, request: web.Request) -> web.Response:
        """Show the AsyncAPI document."""
        if "asyncapi" not in self._kept:
            self._kept["asyncapi"] = orjson.dumps(asyncapi(self._version), option=orjson.OPT_INDENT_2)
        return _answer(request, self._kept["asyncapi"], "application/json")

    async def docs(self, request: web.Request) -> web.Response:
        """Show the API as a page."""
        return _answer(request, _PAGE, "text/html; charset=utf-8")

    async def docs_file(self, request: web.Request) -> web.Response:
        """Serve what the page is made of."""
        name = request.match_info["file"]
        if name == "start.js":
            return _answer(request, _START, _SCRIPT)
        if name == "openapi.json":
            if name not in self._kept:
                self._kept[name] = orjson.dumps(for_older_readers(orjson.loads(await self._info.openapi())))
            return _answer(request, self._kept[name], "application/json")
        if name not in _FILES:
            raise Problem("not_found")
        if name not in self._kept:
            self._kept[name] = (resources.files("swagger_ui_bundle") / _UI / name).read_bytes()
        return _answer(request, self._kept[name], _FILES[name])


def for_older_readers(document: Any) -> Any:
    """Return an OpenAPI 3.1 document as the page reads it, which knows 3.0: what 3.0 has no word for is said its way.

    "Or null" is a mark there, not a type; what keys must look like is left out.
    """
    if isinstance(document, list):
        return [for_older_readers(each) for each in document]
    if not isinstance(document, dict):
        return document
    shown: dict[str, Any] = {}
    for name, value in document.items():
        shown |= _OLDER[name](value) if name in _OLDER else {name: value}
    shown = {name: for_older_readers(value) for name, value in shown.items()}
    if "openapi" in shown and "paths" in shown:
        shown["openapi"] = "3.0.3"
    options = shown.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options:
        rest = [each for each in options if each != {"type": "null"}]
        del shown["anyOf"]
        shown |= {"nullable": True} | (rest[0] if len(rest) == 1 else {"anyOf": rest})
    return shown


def _answer(request: web.Request, body: bytes, media_type: str) -> web.Response:
    tag = etag(hashlib.sha256(body).hexdigest()[:32])
    headers = {
        "ETag": tag,
        "Cache-Control": "no-cache",
        "Content-Security-Policy": _CSP,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    if is_unchanged(request.headers.get("If-None-Match"), tag):
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, headers=headers | {"Content-Type": media_type})
