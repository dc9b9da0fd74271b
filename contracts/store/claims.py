"""Idempotency-Keys: claim, then admit with the claimed id, then mark done. Nobody waits for another's claim."""

from contracts.store import keys, replies
from contracts.store.batcher import Batcher


class KeyClaims:
    """Calls about claims; each lives in its tenant's slot."""

    def __init__(self, batcher: Batcher) -> None:
        self._call = batcher.call

    async def claim(
        self, tenant_id: str, key_hash: str, fingerprint: str, job_id: str, pool: str, ttl_s: int
    ) -> replies.KeyClaim:
        """Claim a key for `job_id`, or learn whose it is; CONFLICT when it belongs to another request or pool."""
        fixed = [keys.claim(tenant_id, key_hash)]
        return replies.key_claim(await self._call("claim_key", fixed, [fingerprint, job_id, pool, ttl_s]))

    async def done(self, tenant_id: str, key_hash: str, job_id: str, status: str) -> None:
        """Record that the job was admitted, and the status last seen."""
        await self._call("end_claim", [keys.claim(tenant_id, key_hash)], [job_id, status])

    async def drop(self, tenant_id: str, key_hash: str, job_id: str) -> None:
        """Forget a pending claim whose id was refused and marked so."""
        await self._call("end_claim", [keys.claim(tenant_id, key_hash)], [job_id, ""])
