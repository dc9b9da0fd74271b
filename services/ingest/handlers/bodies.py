"""Reading the body of a request as what it is to be."""

from aiohttp import web

from services.ingest.context import Context
from services.ingest.edge.body import read_body
from services.ingest.handlers.answers import check_query
from services.ingest.requests import B, parse_body


async def read_as(context: Context, request: web.Request, kind: type[B], query: frozenset[str] = frozenset()) -> B:
    """Return the body of a request that may have these parameters. Raises Problem."""
    check_query(request, query)
    with context.room.share() as share:
        return parse_body(kind, await read_body(request, context.body_limits, share))
