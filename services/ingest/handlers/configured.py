"""What handlers of the configuration share: the folded state, the one way to change it, bodies and pages."""

from collections.abc import Mapping

from aiohttp import web

from contracts.store.directory import Decide
from contracts.tenant import Configuration, Tenant
from services.ingest.context import Context
from services.ingest.cursor import BadCursor, seal, unseal
from services.ingest.edge.problems import Problem
from services.ingest.handlers.answers import check_query, page_answer, read_limit
from services.ingest.handlers.bodies import read_as
from services.ingest.requests import B
from services.ingest.views.body_lines import JsonObject

NOTHING: frozenset[str] = frozenset()
_PAGE = frozenset({"limit", "cursor"})
MOST_REASON = 512


class ConfiguredHandlers:
    """Base of the handlers that read and write configuration."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def _configuration(self) -> Configuration:
        return self._context.store.directory.configuration

    async def _change(self, decide: Decide, subject: str, kept: Mapping[str, str] | None = None) -> Configuration:
        return await self._context.within(self._context.store.directory.change(decide, subject, kept))

    async def _read(self, request: web.Request, kind: type[B], query: frozenset[str] = NOTHING) -> B:
        return await read_as(self._context, request, kind, query)

    async def _read_or_default(self, request: web.Request, kind: type[B]) -> B:
        """Read a body that may be left out: then it is the one without fields."""
        if not request.can_read_body:
            check_query(request, NOTHING)
            return kind()
        return await self._read(request, kind)

    def _page(
        self, request: web.Request, question: str, views: Mapping[str, JsonObject], filters: frozenset[str] = NOTHING
    ) -> web.Response:
        check_query(request, _PAGE | filters)
        limit = read_limit(request)
        after = self._place(question, request.query.get("cursor"))
        names = sorted(name for name in views if name > after)
        cursor = self._cursor(question, names[limit - 1] if len(names) > limit else None)
        return page_answer(request, [views[name] for name in names[:limit]], cursor)

    def _place(self, question: str, cursor: str | None) -> str:
        """Return the place in a cursor, '' without one. Raises Problem `bad_cursor`."""
        try:
            return unseal(self._context.secret("cursors"), question, cursor) if cursor is not None else ""
        except BadCursor:
            raise Problem("bad_cursor") from None

    def _cursor(self, question: str, place: str | None) -> str | None:
        return None if place is None else seal(self._context.secret("cursors"), question, place)


def read_reason(request: web.Request) -> str:
    """Return `?reason=` of a request without a body. Raises Problem `bad_parameter`."""
    reason = request.query.get("reason", "")
    if len(reason) > MOST_REASON or not reason.isprintable():
        raise Problem("bad_parameter", f"reason is {MOST_REASON} printable characters at most")
    return reason


def need_reason(request: web.Request) -> str:
    """Return `?reason=` where there must be one. Raises Problem `bad_parameter`."""
    reason = read_reason(request).strip()
    if not reason:
        raise Problem("bad_parameter", "reason says why, for the log")
    return reason


def find_tenant(state: Configuration, tenant_id: str) -> Tenant:
    """Return a tenant. Raises Problem `tenant_not_found`."""
    tenant = state.tenants.get(tenant_id)
    if tenant is None:
        raise Problem("tenant_not_found")
    return tenant
