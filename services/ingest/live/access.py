"""Who may follow what: a key as everywhere, or a stream token in the URL; and for how long.

Promises: a stream's caller is asked after again while it is open (`is_still_valid`), so that a revoked key or an
expired token ends it; a token sees the jobs it names and none beside them, answered as those of others are: 404.
"""

from urllib.parse import urlsplit

from aiohttp import web

from services.ingest.authenticate import Authenticator
from services.ingest.context import Context
from services.ingest.edge.headers import only_header
from services.ingest.edge.problems import Problem
from services.ingest.handlers.read import JobReader, Shown, job_not_found
from services.ingest.live.tokens import PREFIX, PURPOSE, BadToken, read_token
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import read_lines

READ_ONLY = frozenset({"jobs:read"})


class StreamAccess:
    """Callable that returns the caller of a request for a stream."""

    def __init__(self, context: Context, authenticate: Authenticator) -> None:
        self._context, self._authenticate = context, authenticate

    async def __call__(self, request: web.Request) -> Caller:
        """Return the caller. Raises Problem `unauthenticated`."""
        token = request.query.get("token")
        if token is not None and "Authorization" not in request.headers:
            return self.caller_of(token)
        return await self._authenticate(request)

    def caller_of(self, text: str) -> Caller:
        """Return whose token, or whose key, this is. Raises Problem `unauthenticated`."""
        if not text.startswith(PREFIX):
            return self._authenticate.caller_of(f"Bearer {text}")
        try:
            grant = read_token(self._context.secret(PURPOSE), text, self._context.now_ms())
        except BadToken:
            raise Problem("unauthenticated", "The token is not valid, or its time is over") from None
        caller = Caller(
            grant.tenant_id, grant.key_id, READ_ONLY,
            until_ms=grant.until_ms, job_ids=frozenset(grant.job_ids), user_id=grant.user_id,
        )  # fmt: skip
        if not self.is_still_valid(caller):
            raise Problem("unauthenticated", "The key that made the token was revoked")
        return caller

    def is_still_valid(self, caller: Caller) -> bool:
        """Whether a caller's key was not revoked, and its token has time left. The operator's key lives as we do."""
        if caller.until_ms is not None and self._context.now_ms() >= caller.until_ms:
            return False
        return "admin" in caller.scopes or caller.key_id in self._context.store.directory.configuration.keys


async def may_see(reader: JobReader, caller: Caller, job_id: str) -> Shown:
    """Return a job that this caller may follow. Raises Problem `job_not_found`."""
    if caller.job_ids and job_id not in caller.job_ids:
        raise job_not_found()
    shown = await reader.need(caller, job_id)
    if caller.user_id is not None:
        history = await reader.history(shown, 0)
        if read_lines(history.body).spec.get("userId") != caller.user_id:
            raise job_not_found()
    return shown


def check_origin(request: web.Request, public_url: str) -> None:
    """Refuse a page of another site that comes with cookies: it would act as whoever looks at it.

    Raises Problem `origin_not_allowed`. Who brings a key or a token may be of any site.
    """
    origin = only_header(request, "Origin")
    if origin is None or "Cookie" not in request.headers:
        return
    if urlsplit(origin).netloc.lower() not in (request.host.lower(), urlsplit(public_url).netloc.lower()):
        raise Problem("origin_not_allowed")
