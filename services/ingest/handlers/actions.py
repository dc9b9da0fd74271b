"""`/v1/audit/actions`: who did what with the admin key, from where and why; a tenant sees what concerned it."""

from dataclasses import replace

from aiohttp import web

from services.ingest.edge.problems import Problem
from services.ingest.events.actions import ACTIONS, ActionQuery, ActionReader
from services.ingest.events.query import read_query
from services.ingest.handlers.answers import check_query, page_answer, read_limit
from services.ingest.handlers.events import is_newest_first
from services.ingest.tenancy import Caller

_NAMES = frozenset({"actor", "type", "tenantId", "from", "to", "order", "limit", "cursor"})


class ActionHandler:
    """Lists actions."""

    def __init__(self, reader: ActionReader) -> None:
        self._reader = reader

    async def list_actions(self, request: web.Request, caller: Caller) -> web.Response:
        """List actions, newest first unless asked otherwise."""
        check_query(request, _NAMES)
        query = _read(request, None if caller.is_operator else caller.tenant_id)
        found, cursor = await self._reader.page(query, request.query.get("cursor"), read_limit(request))
        return page_answer(request, list(found), cursor)


def _read(request: web.Request, tenant_id: str | None) -> ActionQuery:
    types = request.query.get("type")
    names = ACTIONS if types is None else tuple(types.split(","))
    if not set(names) <= set(ACTIONS):
        raise Problem("bad_parameter", f"type names some of {', '.join(ACTIONS)}, with commas between")
    asked = {name: value for name, value in request.query.items() if name in ("from", "to")}
    events = replace(read_query(asked, None, lambda user_id: user_id), types=names)
    tenant = tenant_id or request.query.get("tenantId")
    return ActionQuery(events, is_newest_first(request, "desc"), request.query.get("actor"), tenant)
