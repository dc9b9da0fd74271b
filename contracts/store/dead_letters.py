"""Reading the dead letters of a pool, page by page. What makes one, and what takes it off the list, is `commit`."""

from redis.asyncio import Redis

from contracts.dead_letters import DeadLetter
from contracts.job import FIELDS
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.clients import ask, read_text, server_ms

MOST_AT_ONCE = 100  # each is a look at a hash, and the server does nothing else meanwhile
NEWEST = (1 << 52, "")
_FIELDS = tuple(FIELDS[name] for name in ("tenant_id", "model", "error_code", "attempt", "run", "created_ms"))


class DeadLetters:
    """Calls about dead letters."""

    def __init__(self, batcher: Batcher, client: Redis) -> None:
        self._call, self._client = batcher.call, client

    async def page(
        self, pool: str, place: tuple[int, str], limit: int, *, oldest_first: bool = False
    ) -> list[DeadLetter]:
        """Return up to `limit` (MOST_AT_ONCE at most) behind a place, which need not exist: (failed ms, id).

        Newest first, and then what failed exactly at the place with no id is not among them.
        """
        fixed = [keys.dead_letters(pool), keys.job(pool, ""), keys.body(pool, "")]
        args = [*place, min(limit, MOST_AT_ONCE), "1" if oldest_first else "", *_FIELDS]
        raw = await self._call("page_letters", fixed, args)
        assert isinstance(raw, list)
        return [_letter(replies.texts(each)) for each in raw]

    async def count(self, pool: str) -> int:
        """Return how many there are. Raises StoreUnavailable."""
        return int(await ask(self._client.zcard(keys.dead_letters(pool))))

    async def is_forgotten(self, pool: str, job_id: str) -> bool:
        """Whether there was such a job, not long ago. Raises StoreUnavailable."""
        return await read_text(self._client, keys.admitted(pool, job_id)) is not None

    async def now_ms(self) -> int:
        """Return the server's time, by which failures are dated. Raises StoreUnavailable."""
        return server_ms(await ask(self._client.time()))


def _letter(row: list[str]) -> DeadLetter:
    job_id, failed_ms, has_body, tenant_id, model, code, attempt, run, created_ms = row
    return DeadLetter(
        job_id, int(float(failed_ms)), has_body == "1", tenant_id, model, code, *map(_whole, (attempt, run, created_ms))
    )  # fmt: skip


def _whole(text: str) -> int:
    """Return a number of a job's hash; one that somebody broke must not hide the other dead letters."""
    return int(text) if text.isdecimal() and len(text) < 16 else 0
