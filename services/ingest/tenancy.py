"""Who is calling, and how a key is written: `sk_<environment>_<id>_<secret>`.

Promises: the tenant comes from the key and from nowhere else; a key is stored and compared as its SHA-256, so a copy
of the store opens nothing; `admin` implies no job scope.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from contracts.events import Tier
from services.ingest.edge.problems import Problem

MAX_KEY_LENGTH = 256


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of the key of one request. The operator's key belongs to no tenant."""

    tenant_id: str
    key_id: str
    scopes: frozenset[str]
    tier: Tier = "standard"
    # Of a stream token, which opens streams and nothing else:
    until_ms: int | None = None
    job_ids: frozenset[str] = frozenset()  # these jobs only, if any
    user_id: str | None = None  # jobs of this end user only
    # Of somebody who writes with the scope `admin`:
    ip: str | None = None
    user_agent: str | None = None

    @property
    def is_operator(self) -> bool:
        """Whether it may see what concerns other tenants, whosever the key is."""
        return not self.tenant_id or "admin" in self.scopes

    def signed(self, reason: str) -> dict[str, Any]:
        """Return who does it and why, as every event of the administration says it (`contracts.events.Acted`)."""
        return {"reason": reason, "by": self.key_id, "ip": self.ip, "user_agent": self.user_agent}

    def require(self, scope: str) -> None:
        """Raise Problem `missing_scope` unless the key has `scope`."""
        if scope not in self.scopes:
            raise Problem("missing_scope", f"The key lacks the scope {scope}", extensions={"scope": scope})


@dataclass(frozen=True, slots=True)
class PresentedKey:
    """A key as a request shows it: the id it claims, and the digest of all of it."""

    key_id: str
    digest: str


def presented_key(authorization: str | None) -> PresentedKey:
    """Read an `Authorization` header. Raises Problem `unauthenticated`."""
    scheme, _, text = (authorization or "").partition(" ")
    text = text.strip()
    if scheme.lower() != "bearer" or not 0 < len(text) <= MAX_KEY_LENGTH:
        raise Problem("unauthenticated", "Send the header Authorization: Bearer <key>")
    parts = text.split("_", 3)
    key_id = f"key_{parts[2]}" if len(parts) == 4 else ""
    return PresentedKey(key_id, digest_of(text))


def write_key(key_part: str, secret: str) -> str:
    """Write a key; `key_part` is its id without the `key_` in front.

    >>> write_key("9f", "s3cret")
    'sk_live_9f_s3cret'
    """
    return f"sk_live_{key_part}_{secret}"


def digest_of(key: str) -> str:
    """Return what is stored of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
