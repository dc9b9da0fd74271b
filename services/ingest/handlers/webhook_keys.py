"""`/.well-known/webhook-keys.json`: what receivers verify `v1a` signatures with. Public, and the same for all."""

from aiohttp import web

from contracts.webhook_keys import WebhookKey
from services.ingest.context import ROOT, Context
from services.ingest.handlers.answers import check_query, json_answer
from services.ingest.handlers.configured import NOTHING

_KEEP = {"Cache-Control": "public, max-age=3600"}  # the key lives as long as the installation


class WebhookKeysHandler:
    """The route of the public keys."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._key: WebhookKey | None = None

    async def webhook_keys(self, request: web.Request) -> web.Response:
        """Show the public keys."""
        check_query(request, NOTHING)
        if self._key is None:
            self._key = WebhookKey(self._context.secret(ROOT))
        return json_answer({"webhookKeys": [self._key.text()], "keys": [self._key.jwk()]}, headers=_KEEP)
