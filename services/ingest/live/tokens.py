"""Stream tokens: a page may follow with one what its maker allowed, for at most 15 minutes, and do nothing else.

Promises: a token is made from a key and says so: it ends with that key; nobody without the installation's secret can
make or widen one; it opens streams only. It is for URLs, because an EventSource can send no header; no part of this
service writes a URL's query anywhere.
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass

import orjson
from aiohttp import web

from contracts.api import StreamTokenCreate
from contracts.times import instant
from services.ingest.context import Context
from services.ingest.handlers.answers import json_answer
from services.ingest.handlers.bodies import read_as
from services.ingest.handlers.read import JobReader
from services.ingest.tenancy import Caller

PURPOSE = "stream-tokens"
PREFIX = "st_"
MAX_LENGTH = 8_192


class BadToken(ValueError):
    """The text is no token, or its time is over."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token allows."""

    tenant_id: str
    key_id: str
    until_ms: int
    job_ids: tuple[str, ...] = ()
    user_id: str | None = None


def write_token(secret: bytes, grant: Grant) -> str:
    """Write a grant down so that it cannot be changed."""
    facts = [grant.tenant_id, grant.key_id, grant.until_ms, list(grant.job_ids), grant.user_id]
    payload = _encode(orjson.dumps(facts))
    return f"{PREFIX}{payload}.{_encode(_mac(secret, payload))}"


def read_token(secret: bytes, token: str, now_ms: int) -> Grant:
    """Read a token back. Raises BadToken.

    >>> read_token(b"k", write_token(b"k", Grant("t_a", "key_1", 5)), now_ms=4).tenant_id
    't_a'
    """
    payload, _, mac = token.removeprefix(PREFIX).partition(".")
    if not token.startswith(PREFIX) or len(token) > MAX_LENGTH or not token.isascii():
        raise BadToken("not a token")
    if not hmac.compare_digest(_encode(_mac(secret, payload)).encode(), mac.encode()):
        raise BadToken("not made here")
    try:
        tenant_id, key_id, until_ms, job_ids, user_id = orjson.loads(base64.urlsafe_b64decode(payload + "=="))
    except (ValueError, binascii.Error):
        raise BadToken("not a token") from None
    if now_ms >= until_ms:
        raise BadToken("its time is over")
    return Grant(tenant_id, key_id, until_ms, tuple(job_ids), user_id)


class TokenHandler:
    """`POST /v1/stream-tokens`."""

    def __init__(self, context: Context, reader: JobReader) -> None:
        self._context, self._reader = context, reader

    async def create_token(self, request: web.Request, caller: Caller) -> web.Response:
        """Make a token for jobs of the caller, or of one of its users, or for all it may see."""
        context = self._context
        wanted = await read_as(context, request, StreamTokenCreate)
        for job_id in wanted.job_ids or ():
            await self._reader.need(caller, job_id)
        until_ms = context.now_ms() + wanted.ttl_seconds * 1000
        grant = Grant(caller.tenant_id, caller.key_id, until_ms, tuple(wanted.job_ids or ()), wanted.user_id)
        return json_answer({"token": write_token(context.secret(PURPOSE), grant), "expiresAt": instant(until_ms)}, 201)


def _mac(secret: bytes, payload: str) -> bytes:
    return hmac.new(secret, f"stream\n{payload}".encode(), hashlib.sha256).digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
