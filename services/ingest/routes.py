"""What a route is: one row with everything that the router, the scope check and the OpenAPI document need.

One table serves all three, so that the document cannot drift from what is served.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from pydantic import BaseModel

from services.ingest.tenancy import Caller

OpenHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Authenticate = Callable[[web.Request], Awaitable[Caller]]
KeyedHandler = Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or header; `kind` is a type of JSON Schema."""

    name: str
    about: str
    place: str = "query"
    kind: str = "string"
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One method on one path. Without a `scope` no key is asked for."""

    method: str
    path: str
    handler: OpenHandler | KeyedHandler
    about: str
    scope: str | None = None
    or_scope: str | None = None  # another one that opens it; what it opens then, the handler says
    body: type[BaseModel] | None = None
    replies: tuple[tuple[int, str], ...] = ((200, "Done."),)
    reply: type[BaseModel] | None = None
    media_type: str = "application/json"
    problems: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    needs_body: bool = True  # where there is one; else leaving it out means the one without fields
    authenticate: Authenticate | None = None  # another way to say who is calling than the key of all routes
    takes_file: bool = False  # its body is bytes, of a size that its handler knows


PAGED = (
    Parameter("limit", "Most items of one page.", kind="integer"),
    Parameter("cursor", "`nextCursor` of the page before, with the same filters."),
)
IF_NONE_MATCH = Parameter("If-None-Match", "The ETag that is known already.", "header")
