"""Taking out of a pool what an erased job left in it, and knowing what is left to take out.

The job's body goes in the call that writes `job.erased` (`Write.erases`); from then on nothing of it is planned or
sent. Promises: each call may be repeated, and does nothing then; what waits in `erasing` is there until it is ended.
"""

from collections.abc import Mapping, Sequence

from redis.asyncio import Redis

from contracts.deliveries import KEEP_SETTLED_S
from contracts.events import ArchiveErased
from contracts.ids import SKEW_MS, minted_ms
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.clients import as_text, ask
from contracts.store.live import ERASED
from contracts.store.write import KeyRing, Write, encode

DELIVERIES_AT_ONCE = 25  # each holds the answers of its attempts, and the server does nothing else meanwhile


class Erasing:
    """Calls about erased jobs."""

    def __init__(self, batcher: Batcher, client: Redis) -> None:
        self._call, self._client = batcher.call, client

    async def erase_forgotten(self, pool: str, event: ArchiveErased, left: str, now_ms: int = 0) -> replies.Reply:
        """Say that a forgotten job is erased, once while it waits; `left` is what is to be removed."""
        ring = KeyRing(pool, [keys.log(pool), keys.erasing(pool)])
        write = encode(Write("log", (event,), of_job=False), ring)
        return replies.reply(await self._call("erase_forgotten", ring.keys, [now_ms, event.job_id, left, write]))

    async def waiting(self, pool: str, most: int) -> dict[str, str]:
        """Return jobs of which something is left to remove, about `most` of them. Raises StoreUnavailable."""
        _, found = await ask(self._client.hscan(keys.erasing(pool), 0, count=most))
        return {as_text(job_id): as_text(left) for job_id, left in found.items()}

    async def left(self, pool: str, job_id: str) -> str | None:
        """Return what of a job is left to remove; None when nothing is. Raises StoreUnavailable."""
        found = await ask(self._client.hget(keys.erasing(pool), job_id))
        return None if found is None else as_text(found)

    async def again(self, pool: str, left: Mapping[str, str]) -> frozenset[str]:
        """Let erased jobs wait to be removed once more, each with what is left; returns those that waited already.

        These may have been looked for before what came back was there: ask again once they are ended.
        """
        args = [text for pair in left.items() for text in pair]
        return frozenset(replies.texts(await self._call("erase_again", [keys.erasing(pool)], args))[1:])

    async def end(self, pool: str, token: str, job_ids: Sequence[str]) -> bool:
        """Nothing is left of these; False for another than the leader of the archive, or '' where there is none."""
        fixed = [keys.archive(pool), keys.erasing(pool)]
        return replies.texts(await self._call("end_erasures", fixed, [token, *job_ids]))[0] == "APPLIED"

    async def deliveries(self, pool: str, tenant_id: str, job_id: str, now_ms: int = 0) -> int:
        """Take the job's words out of its deliveries, and give up those that wait; returns how many there were."""
        fixed, prefix = [keys.log(pool), keys.deliveries(pool)], f"dlv_{job_id.removeprefix('job_')}_"
        total, last = 0, ""
        while True:
            args = [now_ms, tenant_id, prefix, last, DELIVERIES_AT_ONCE, KEEP_SETTLED_S]
            _, count, last = replies.texts(await self._call("erase_deliveries", fixed, args))
            total += int(count)
            if not last:
                return total

    async def live(self, pool: str, job_id: str, until_ms: int) -> None:
        """Take what the job printed, until then, out of the live stream and of the memory of those who follow it."""
        since_ms = max(0, minted_ms(job_id) - SKEW_MS)
        await self._call("erase_live", [keys.live(pool)], [job_id, ERASED, since_ms, until_ms])

    async def claim(self, tenant_id: str, key_hash: str, job_id: str) -> None:
        """Let the claim of an Idempotency-Key know nothing but its job."""
        await self._call("erase_claim", [keys.claim(tenant_id, key_hash)], [job_id])

    async def use_files(self, tenant_id: str, file_ids: Sequence[str], pool: str, job_id: str, keep_s: int) -> None:
        """Note, before it is admitted, that a job names files that were sent."""
        places = [keys.file_uses(tenant_id, file_id) for file_id in file_ids]
        await self._call("use_files", places, [f"{pool} {job_id}", keep_s])

    async def leave_file(self, tenant_id: str, file_id: str, pool: str, job_id: str) -> Mapping[str, str]:
        """The job does not use a file any more; returns the jobs that did or may, with their pools."""
        raw = await self._call("leave_file", [keys.file_uses(tenant_id, file_id)], [f"{pool} {job_id}"])
        pairs = (text.partition(" ") for text in replies.texts(raw))
        return {other: its_pool for its_pool, _, other in pairs}
