"""The web application: routes, the key check in front of them, the outermost middleware around them.

Composition only: what a route does is in the handler files, what it may refuse in `edge/problems.py`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import cast

import structlog
from aiohttp import http_parser, web

from contracts.telemetry import Logger
from services.ingest.edge.answers import problem_response
from services.ingest.edge.body import check_size
from services.ingest.edge.middleware import EdgeState, Handler, answering
from services.ingest.edge.problems import Problem
from services.ingest.routes import Authenticate, KeyedHandler, OpenHandler, Route
from services.ingest.tenancy import Caller

log: Logger = structlog.get_logger(service="ingest")

EDGE: web.AppKey[EdgeState] = web.AppKey("edge", EdgeState)
MOST_LETTERS = 200  # of a User-Agent
ROUTES: web.AppKey[tuple[Route, ...]] = web.AppKey("routes", tuple)


def make_app(
    routes: Sequence[Route], edge: EdgeState, authenticate: Authenticate, max_body_bytes: int
) -> web.Application:
    """Build the application. Routes with a scope are behind `authenticate`."""
    app = web.Application(middlewares=[answering(edge, monotonic)])
    app[EDGE] = edge
    app[ROUTES] = tuple(routes)
    expect = _expecting(edge, max_body_bytes)
    expect_file = _expecting(edge, 1 << 50)
    for route in routes:
        handler = _guarded(route, authenticate)
        # HEAD comes with GET (RFC 9110): `curl -I` of a result and health checks of proxies use it.
        for method in ("GET", "HEAD") if route.method == "GET" else (route.method,):
            app.router.add_route(
                method, route.path, handler, expect_handler=expect_file if route.takes_file else expect
            )
    return app


def warn_of_slow_parser() -> bool:
    """Say so when HTTP is parsed in pure Python: it is far slower and was the laxer of the two in the past."""
    is_slow = http_parser.HttpRequestParser is http_parser.HttpRequestParserPy
    if is_slow:
        log.warning("http_parser_is_pure_python", hint="install aiohttp with its C extensions")
    return is_slow


def _guarded(route: Route, authenticate: Authenticate) -> Handler:
    if route.scope is None:
        return cast(OpenHandler, route.handler)
    handler = cast(KeyedHandler, route.handler)
    scope, identify = route.scope, route.authenticate or authenticate
    is_action = scope == "admin" and route.method != "GET"

    async def keyed(request: web.Request) -> web.StreamResponse:
        caller = await identify(request)
        if route.or_scope not in caller.scopes:
            caller.require(scope)
        return await handler(request, _seen(request, caller) if is_action else caller)

    return keyed


def _seen(request: web.Request, caller: Caller) -> Caller:
    """Note from where somebody acts; what a client says of itself is text of the caller."""
    said = "".join(letter for letter in request.headers.get("User-Agent", "") if letter.isprintable())
    return replace(caller, ip=request.remote, user_agent=said[:MOST_LETTERS] or None)


def _expecting(edge: EdgeState, max_body_bytes: int) -> Callable[[web.Request], Awaitable[web.StreamResponse | None]]:
    async def expect(request: web.Request) -> web.StreamResponse | None:
        # A body that will be refused must not be asked for: that is what the expectation is about.
        try:
            check_size(request, max_body_bytes)
        except Problem as problem:
            return problem_response(problem, request.path, edge.mint_request_id())
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
        return None

    return expect
