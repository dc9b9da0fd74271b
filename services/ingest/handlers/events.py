"""`/v1/events`: the tenant's events over live log and archive, and for operators everybody's.

Promises: a tenant sees the events of its own jobs and nothing that names others; a page costs a bounded number of
entries looked at, and comes shorter with a cursor that goes on when that is not enough to fill it.
"""

from aiohttp import web

from services.ingest.edge.problems import Problem
from services.ingest.events.finding import EventReader
from services.ingest.events.query import FILTERS, OPERATOR_FILTERS, EventQuery, read_query
from services.ingest.handlers.answers import check_query, json_answer, page_answer, read_limit
from services.ingest.tenancy import Caller

MAX_EVENTS_PAGE = 500
_PAGE = frozenset({"order", "limit", "cursor"})


class EventHandlers:
    """Reads events."""

    def __init__(self, reader: EventReader) -> None:
        self._reader = reader

    async def list_events(self, request: web.Request, caller: Caller) -> web.Response:
        """List the tenant's events, oldest first unless asked otherwise."""
        check_query(request, FILTERS | _PAGE)
        return await self._list(request, read_query(request.query, caller.tenant_id, self._reader.digest_of_user))

    async def admin_list_events(self, request: web.Request, caller: Caller) -> web.Response:
        """List events of all tenants, and those of workers, pools and deliveries."""
        check_query(request, OPERATOR_FILTERS | _PAGE)
        return await self._list(request, read_query(request.query, None, self._reader.digest_of_user))

    async def get_event(self, request: web.Request, caller: Caller) -> web.Response:
        """Show one event."""
        check_query(request, frozenset())
        view = await self._reader.find(caller.tenant_id, request.match_info["id"])
        if view is None:
            raise Problem("event_not_found", "There is no such event, or it is not yours, or it is no longer kept")
        return json_answer(view)

    async def _list(self, request: web.Request, query: EventQuery) -> web.Response:
        newest_first = is_newest_first(request)
        scan = self._reader.scan(query, request.query.get("cursor"), newest_first=newest_first)
        views = await scan.step(read_limit(request, MAX_EVENTS_PAGE))
        cursor = None if scan.is_over else self._reader.cursor(query, scan, newest_first=newest_first)
        return page_answer(request, list(views), cursor)


def is_newest_first(request: web.Request, otherwise: str = "asc") -> bool:
    """Read `?order=`. Raises Problem `bad_parameter`."""
    order = request.query.get("order", otherwise)
    if order not in ("asc", "desc"):
        raise Problem("bad_parameter", "order is asc or desc")
    return order == "desc"
