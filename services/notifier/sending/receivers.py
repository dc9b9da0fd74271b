"""What the configuration says of the receiver of a delivery: whether, where, with which secrets and how fast.

Promises: an answer is as new as the configuration that this process has folded. What is kept secret is read again when
the configuration says that it was replaced.
"""

from contracts.deliveries import Ask
from contracts.endpoints import Endpoint, Private, endpoint_secret, tenant_secret
from contracts.store import Store
from contracts.store.deliveries import ENDPOINT_DELETED, HELD
from contracts.webhook_keys import KEY_ROOT, WebhookKey
from services.notifier.sending.record import StoredDelivery, Target

ANONYMOUS = "anon"  # how the names of endpoints begin that no configuration knows: a job's own `webhookUrl`
KNOWN_MAX = 10_000
AT_ONCE_S = 0.1  # so much of its rate may an endpoint be sent in one go


class Receivers:
    """The receivers of one process. `most`: how many attempts one of them takes at once, unless it says otherwise."""

    def __init__(self, store: Store, most: int) -> None:
        self._directory = store.directory
        self._most = most
        self._key: WebhookKey | None = None
        self._kept: dict[str, tuple[str, Private | None]] = {}  # name -> (version, what is kept under it)

    def endpoint(self, name: str) -> Endpoint | None:
        """Return what is configured of an endpoint; None for an anonymous one, or one that is gone."""
        return self._directory.configuration.endpoint_by_name(name)

    def off(self, name: str) -> str | None:
        """Return what becomes of the deliveries of an endpoint that nothing may be sent to; None: it is on."""
        if name.startswith(ANONYMOUS):
            return None
        endpoint = self.endpoint(name)
        if endpoint is None:
            return ENDPOINT_DELETED
        return HELD if endpoint.disabled else None

    def ask(self, name: str) -> Ask:
        """Return what one may ask for of an endpoint; room for nothing yet."""
        endpoint = self.endpoint(name)
        if endpoint is None:
            return Ask(name, 0, self._most)
        most, rate = endpoint.max_in_flight or self._most, endpoint.rate_per_s
        if not rate:
            return Ask(name, 0, most)
        return Ask(name, 0, most, gap_ms=1000 / rate, burst=max(1, int(rate * AT_ONCE_S)))

    async def target(self, delivery: StoredDelivery, now_ms: int) -> Target:
        """Return where a delivery goes. Raises StoreUnavailable; Corrupt when what is kept of it cannot be read."""
        configuration, endpoint = self._directory.configuration, self.endpoint(delivery.endpoint)
        tenant = configuration.tenants.get(delivery.tenant_id)
        hosts = None if tenant is None else tenant.webhook_hosts
        if endpoint is not None:
            kept = await self._private(endpoint_secret(endpoint.id), endpoint.version)
            key = await self._own_key() if endpoint.ed25519 else None
            return Target(kept.url, kept.signing(now_ms), kept.headers, hosts, key)
        version = "" if tenant is None else tenant.webhook_version
        kept = await self._private(tenant_secret(delivery.tenant_id), version)
        return Target(delivery.url, kept.signing(now_ms), hosts=hosts)

    async def _own_key(self) -> WebhookKey | None:
        """Return the installation's key; None before there is one, then only the secrets sign."""
        if self._key is None and (root := await self._directory.secret(KEY_ROOT)) is not None:
            self._key = WebhookKey(root.encode())
        return self._key

    async def _private(self, name: str, version: str) -> Private:
        known = self._kept.get(name)
        if known is None or known[0] != version or known[1] is None:
            if len(self._kept) >= KNOWN_MAX:
                self._kept.clear()
            known = self._kept[name] = version, await self._directory.private(name)
        return known[1] or Private()
