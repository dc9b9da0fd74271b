"""Headers that decide something and may stand in a request once only.

Promises: nobody guesses which of two keys counts. A proxy and this service could take different ones.
"""

from aiohttp import web

from services.ingest.edge.problems import Problem


def only_header(request: web.BaseRequest, name: str) -> str | None:
    """Return the one value of a header, None without it. Raises Problem `bad_request` when it is there twice."""
    values = request.headers.getall(name, ())
    if len(values) > 1:
        raise Problem("bad_request", f"{name} may be sent only once")
    return values[0] if values else None
