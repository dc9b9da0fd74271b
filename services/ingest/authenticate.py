"""From the header of a request to the caller: the configuration says whose key it is.

Promises: a key is found by the id inside it and then compared as a digest in constant time; whether the id or the
secret was wrong cannot be told. Works from the folded configuration, also while the store is away; what was revoked
stops working as soon as the entry is read.
"""

import hashlib
import hmac
from collections.abc import Callable

from aiohttp import web

from contracts.errors import StoreUnavailable
from contracts.positions import START
from contracts.tenant import Configuration
from services.ingest.edge.headers import only_header
from services.ingest.edge.problems import Problem
from services.ingest.tenancy import Caller, presented_key

OPERATOR_SCOPES = frozenset({"admin", "audit:read"})
_NOBODY = hashlib.sha256(b"").hexdigest()


class Authenticator:
    """Callable that returns the caller of a request."""

    def __init__(self, configuration: Callable[[], Configuration], admin_key: str | None) -> None:
        self._configuration = configuration
        self._operator_digest = None if admin_key is None else hashlib.sha256(admin_key.encode()).hexdigest()

    async def __call__(self, request: web.Request) -> Caller:
        """Return the caller. Raises Problem `unauthenticated`, StoreUnavailable before anything was folded."""
        return self.caller_of(only_header(request, "Authorization"))

    def caller_of(self, authorization: str | None) -> Caller:
        """Return whose key stands in a header. Raises as a call."""
        presented = presented_key(authorization)
        if self._operator_digest is not None and hmac.compare_digest(self._operator_digest, presented.digest):
            return Caller("", "operator", OPERATOR_SCOPES)
        configuration = self._configuration()
        if configuration.position == START:
            raise StoreUnavailable("no configuration is known yet")
        key = configuration.keys.get(presented.key_id)
        # An unknown id is compared, too, so that it takes as long as a wrong secret.
        is_same = hmac.compare_digest(key.sha256 if key else _NOBODY, presented.digest)
        if key is None or not is_same:
            raise Problem("unauthenticated", "The key is not valid")
        tenant = configuration.tenants.get(key.tenant_id)
        return Caller(key.tenant_id, key.id, frozenset(key.scopes), tenant.tier if tenant else "standard")
