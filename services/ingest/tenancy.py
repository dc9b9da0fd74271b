"""Who is calling: what a key opens, and nothing about how keys are stored.

Promises: the tenant comes from the key and from nowhere else; a key is compared by its SHA-256, so a copy of the
store opens nothing; `admin` implies no job scope.
"""

import hashlib
from dataclasses import dataclass

from contracts.api import Tier
from services.ingest.edge.problems import Problem

MAX_KEY_LENGTH = 256


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of the key of one request."""

    tenant_id: str
    key_id: str
    scopes: frozenset[str]
    tier: Tier = "standard"

    def require(self, scope: str) -> None:
        """Raise Problem `missing_scope` unless the key has `scope`."""
        if scope not in self.scopes:
            raise Problem("missing_scope", f"The key lacks the scope {scope}", extensions={"scope": scope})


def key_digest(authorization: str | None) -> str:
    """Return the SHA-256 of the key in an `Authorization` header. Raises Problem `unauthenticated`."""
    scheme, _, key = (authorization or "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not 0 < len(key) <= MAX_KEY_LENGTH:
        raise Problem("unauthenticated", "Send the header Authorization: Bearer <key>")
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
