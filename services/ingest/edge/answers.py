"""Problems as bytes on the wire: for a handler's request, and for a connection that has no request yet."""

import orjson
from aiohttp import web

from services.ingest.edge.problems import Problem, document, header_fields

MEDIA_TYPE = "application/problem+json"


def problem_response(problem: Problem, instance: str, request_id: str) -> web.Response:
    """Render a problem; the connection ends with it where the rest of the request cannot be trusted."""
    response = web.Response(
        status=problem.kind.status,
        body=orjson.dumps(document(problem, instance, request_id)),
        headers={
            "Content-Type": MEDIA_TYPE,
            "Server": "headrace",
            "X-Request-Id": request_id,
            **header_fields(problem),
        },
    )
    if problem.kind.closes_connection:
        response.force_close()
    return response


def raw_answer(problem: Problem) -> bytes:
    """Write a whole HTTP answer that ends the connection, for a peer whose request nobody has read."""
    body = orjson.dumps(document(problem, "", ""))
    fields = {"Content-Type": MEDIA_TYPE, "Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"{name}: {value}" for name, value in (fields | header_fields(problem)).items()]
    status_line = f"HTTP/1.1 {problem.kind.status} {problem.code}"
    return "\r\n".join([status_line, *lines, "", ""]).encode() + body
