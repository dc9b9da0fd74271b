"""What the configuration says of an endpoint when something is to be sent to it: where, with which secrets, how fast.

Promises: an answer is as new as the configuration this process has folded; secrets are read again whenever that moves.
"""

from contracts.deliveries import Ask
from contracts.store import Store
from services.notifier.record import StoredDelivery

KNOWN_MAX = 10_000


class Receivers:
    """The receivers of one process. `most`: how many attempts one of them takes at once, unless it says otherwise."""

    def __init__(self, store: Store, most: int) -> None:
        self._directory = store.directory
        self._most = most
        self._secrets: dict[str, str | None] = {}
        self._known_at = ""

    def ask(self, endpoint: str) -> Ask | None:
        """Return what to ask for of an endpoint, None when nothing may be sent to it."""
        return Ask(endpoint, 0, self._most)

    async def target(self, delivery: StoredDelivery) -> tuple[str, tuple[str, ...]]:
        """Return where to send a delivery and the secrets that sign it. Raises StoreUnavailable."""
        secret = await self._secret(f"webhook:{delivery.tenant_id}")
        return delivery.url, () if secret is None else (secret,)

    async def _secret(self, name: str) -> str | None:
        # A secret changes only in the call of a configuration event.
        position = self._directory.configuration.position
        if position != self._known_at or len(self._secrets) >= KNOWN_MAX:
            self._secrets.clear()
            self._known_at = position
        if name not in self._secrets:
            self._secrets[name] = await self._directory.secret(name)
        return self._secrets[name]
