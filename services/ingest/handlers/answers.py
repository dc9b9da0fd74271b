"""Successful answers, and the few things every handler reads from a request."""

from collections.abc import Mapping

import orjson
from aiohttp import web

from services.ingest.edge.problems import Problem

DEFAULT_LIMIT = 50
MAX_LIMIT = 100


def json_answer(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer with JSON."""
    fields = {"Content-Type": "application/json", "Cache-Control": "no-store", **(headers or {})}
    return web.Response(status=status, body=orjson.dumps(body), headers=fields)


def page_answer(
    request: web.Request, items: list[object], next_cursor: str | None, about: Mapping[str, object] | None = None
) -> web.Response:
    """Answer with one page of a list, and what there is to say `about` it; the `Link` header leads to the next."""
    body = {"data": items, "hasMore": next_cursor is not None, "nextCursor": next_cursor, **(about or {})}
    if next_cursor is None:
        return json_answer(body)
    following = request.rel_url.update_query({"cursor": next_cursor})
    return json_answer(body, headers={"Link": f'<{following}>; rel="next"'})


def check_query(request: web.Request, allowed: frozenset[str], prefix: str = "") -> None:
    """Refuse a misspelt parameter: ignoring it would answer another question. Raises Problem `bad_parameter`."""
    for name in request.query:
        if name not in allowed and not (prefix and name.startswith(prefix)):
            raise Problem("bad_parameter", f"There is no parameter {name[:64]!r} here")


def read_limit(request: web.Request, largest: int = MAX_LIMIT, usual: int | None = None) -> int:
    """Return `?limit=`, else the `usual` one. Raises Problem `bad_parameter`."""
    return read_whole(request, "limit", 1, largest) or usual or min(DEFAULT_LIMIT, largest)


def read_whole(request: web.Request, name: str, least: int, most: int) -> int | None:
    """Return a whole number of the query, None when it is not there. Raises Problem `bad_parameter`."""
    text = request.query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 12 and least <= int(text) <= most):
        raise Problem("bad_parameter", f"{name} is a whole number from {least} to {most}")
    return int(text)
