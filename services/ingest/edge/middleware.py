"""The outermost layer of every request: one id, one kind of error, one measurement.

Promises: whatever a handler raises becomes a problem document with the id of the request, and never a stack
trace; what is logged has the id and no body, no key and no query. While draining, each answer ends its connection.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

import structlog
from aiohttp import web

from contracts.errors import Rejected, Unavailable
from contracts.telemetry import Logger
from services.ingest.edge.answers import problem_response
from services.ingest.edge.problems import CATALOGUE, Problem, code_for_status
from services.ingest.metrics import IngestMetrics

log: Logger = structlog.get_logger(service="ingest")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
REQUEST_ID: web.RequestKey[str] = web.RequestKey("request_id", str)
# Methods outside this list share one label: the method is text of the caller.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass(slots=True)
class EdgeState:
    """What all requests of the process share. `boot` tells the ids of two processes apart."""

    boot: str
    metrics: IngestMetrics
    is_draining: bool = False
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def mint_request_id(self) -> str:
        """Return an id never used before by this process."""
        return f"req_{self.boot}{next(self._numbers):08x}"


def answering(state: EdgeState, now_s: Callable[[], float]) -> Callable[..., Awaitable[web.StreamResponse]]:
    """Make the middleware. `now_s` is a monotonic clock."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        started_s = now_s()
        request_id = request[REQUEST_ID] = state.mint_request_id()
        try:
            response = await handler(request)
        except Exception as error:
            problem = as_problem(error, request_id)
            response = problem_response(problem, request.path, request_id)
        if not response.prepared:
            stamp(response, request_id)
            if state.is_draining:
                response.force_close()
        method = request.method if request.method in _METHODS else "other"
        state.metrics.observe_request(method, route_of(request), response.status, now_s() - started_s)
        return response

    return answer


def stamp(response: web.StreamResponse, request_id: str) -> None:
    """Set the headers that every answer has; a handler that sends its head by itself calls this first."""
    response.headers["X-Request-Id"] = request_id
    response.headers["Server"] = "headrace"  # not the versions of what we are built from


def as_problem(error: Exception, request_id: str) -> Problem:
    """Translate what a handler raised; only what nobody expected is logged with its trace."""
    match error:
        case Problem():
            return error
        case web.HTTPException():
            allow = error.headers.get("Allow")
            return Problem(code_for_status(error.status), headers={"Allow": allow} if allow else {})
        case web.RequestPayloadError() | ConnectionError():
            return Problem("bad_request", "The body could not be read")
        case Rejected(code=code) if code in CATALOGUE:
            return Problem(code, error.detail, retry_after_s=error.retry_after_s)
        case Unavailable(code=code) if code in CATALOGUE:
            log.warning("request_refused", request_id=request_id, code=code)
            return Problem(code)
        case _:
            log.error("request_failed", request_id=request_id, exc_info=error)
            return Problem("internal", "The failure is recorded under this request id")


def route_of(request: web.Request) -> str:
    """Return the template of the route, `unmatched` when there is none."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "unmatched"
