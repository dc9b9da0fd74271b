"""Before a job is admitted: its Idempotency-Key, and what its tenant may submit and send.

Claim, then admit with the claimed id, then mark done. Nobody waits for another's claim.
"""

from contracts.store import keys, replies
from contracts.store.batcher import Batcher


class KeyClaims:
    """Calls about claims; each lives in its tenant's slot."""

    def __init__(self, batcher: Batcher) -> None:
        self._call = batcher.call

    async def claim(
        self,
        tenant_id: str,
        key_hash: str,
        fingerprint: str,
        job_id: str,
        pool: str,
        ttl_s: int,
        per_minute: int | None = None,
        now_ms: int = 0,
    ) -> replies.KeyClaim:
        """Claim a key for `job_id`, or learn whose it is; a new one counts as a submit, of `per_minute` at most.

        CONFLICT when it belongs to another request or pool.
        """
        fixed = [keys.claim(tenant_id, key_hash), keys.submits(tenant_id)]
        args = [fingerprint, job_id, pool, ttl_s, now_ms, "" if per_minute is None else per_minute]
        return replies.key_claim(await self._call("claim_key", fixed, args))

    async def take_submit(
        self, tenant_id: str, per_minute: int, now_ms: int = 0, *, only_look: bool = False
    ) -> replies.Submits:
        """Count a submit without a key, of `per_minute` at most; or `only_look` at what is left."""
        args = [now_ms, per_minute, "1" if only_look else ""]
        return replies.submits(await self._call("take_submit", [keys.submits(tenant_id)], args))

    async def take_upload(self, tenant_id: str, mib: int, mib_per_day: int, now_ms: int = 0) -> int:
        """Count a file that is to be sent; returns 0, or after how many ms it may be tried again: not counted then."""
        raw = await self._call("take_upload", [keys.uploads(tenant_id)], [now_ms, mib_per_day, mib])
        return replies.submits(raw).wait_ms

    async def done(self, tenant_id: str, key_hash: str, job_id: str, status: str, *, same_as: str = "") -> None:
        """Record that the job was admitted (or which job the claimed id stands for), and the status last seen."""
        await self._call("end_claim", [keys.claim(tenant_id, key_hash)], [job_id, status, same_as])

    async def drop(self, tenant_id: str, key_hash: str, job_id: str) -> None:
        """Forget a pending claim whose id was refused and marked so."""
        await self._call("end_claim", [keys.claim(tenant_id, key_hash)], [job_id, "", ""])
