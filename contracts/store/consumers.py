"""Reading how far the readers of a pool are, and dropping a group that nobody reads any more."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from contracts.consumers import ACTIVE_MS, Member, OldestPending, Standing, holders, known_lag
from contracts.errors import StoreUnavailable
from contracts.events import ConsumerDropped
from contracts.positions import entry_ms
from contracts.store import keys, replies
from contracts.store.batcher import Batcher
from contracts.store.clients import LOST, as_text, server_ms
from contracts.store.write import KeyRing, Write, encode

ARCHIVIST = "archivist"


class Consumers:
    """Calls about groups of consumers."""

    def __init__(self, batcher: Batcher, client: Redis) -> None:
        self._call, self._client = batcher.call, client

    async def standings(self, pool: str, workers: Sequence[str] = ()) -> tuple[int, list[Standing]]:
        """Return the server's ms, and how far all are: the log's groups, the archive, these workers' own streams."""
        streams = {"log": keys.log(pool)} | {worker: keys.work(pool, worker) for worker in workers}
        pipe = self._client.pipeline(transaction=False)
        pipe.time()
        for name in (keys.leader(pool), keys.mirror(pool), keys.archive(pool)):
            pipe.hget(name, "until")
        pipe.hget(keys.archive(pool), "upto")
        for key in streams.values():
            pipe.xinfo_stream(key)
            pipe.xinfo_groups(key)
        now, led, mirroring, archiving, upto, *rest = await _ask(pipe)
        now_ms = server_ms(now)
        found = list[Standing]()
        for (stream, key), about, groups in zip(streams.items(), rest[::2], rest[1::2], strict=True):
            if isinstance(about, Exception) or isinstance(groups, Exception):
                continue  # there is no such stream
            found += await self._of_stream(pool, stream, key, about, groups, now_ms)
        led_until = {keys.GROUP_SCHEDULER: int(led or 0), keys.GROUP_MIRROR: int(mirroring or 0)}
        found = [replace(each, until_ms=led_until.get(each.group) if each.stream == "log" else None) for each in found]
        if upto is None:
            return now_ms, found
        archived = as_text(upto)
        holding = holders([each for each in found if each.stream == "log"], archived)
        found = [replace(each, holds_log=each.stream == "log" and each.group in holding) for each in found]
        behind_ms = await self._behind_ms(keys.log(pool), archived, now_ms)
        archive = Standing(pool, "log", ARCHIVIST, archived, None, behind_ms, until_ms=int(archiving or 0))
        return now_ms, [*found, archive]

    async def drop(
        self, standing: Standing, event: ConsumerDropped, write_id: str, *, force: bool = False, now_ms: int = 0
    ) -> replies.Reply:  # fmt: skip
        """Drop a group of a log: REFUSED while it is read, CONFLICT where it was read since, GONE."""
        pool = standing.pool
        led_by = [keys.mirror(pool)] if standing.group == keys.GROUP_MIRROR else []
        ring = KeyRing(pool, [keys.log(pool), keys.meta(pool), *led_by])
        write = encode(Write(standing.group, (event,), of_job=False), ring)
        args = [now_ms, standing.group, standing.position, ACTIVE_MS, "1" if force else "", write_id, write]
        return replies.reply(await self._call("drop_group", ring.keys, args))

    async def _of_stream(
        self, pool: str, stream: str, key: str, about: Any, groups: Any, now_ms: int
    ) -> list[Standing]:  # fmt: skip
        pipe = self._client.pipeline(transaction=False)
        for group in groups:
            name, position = group["name"], as_text(group["last-delivered-id"])
            pipe.xrange(key, min=f"({position}", count=1)
            pipe.xpending_range(key, name, min="-", max="+", count=1)
            pipe.xinfo_consumers(key, name)
        rows = await _ask(pipe) if groups else []
        return [
            _standing(pool, stream, group, int(about["length"]), rows[3 * i : 3 * i + 3], now_ms)
            for i, group in enumerate(groups)
        ]

    async def _behind_ms(self, key: str, position: str, now_ms: int) -> int:
        pipe = self._client.pipeline(transaction=False)
        pipe.xrange(key, min=f"({position}", count=1)
        (first,) = await _ask(pipe)
        return _age_ms(first, now_ms)


def _standing(pool: str, stream: str, group: Any, length: int, rows: Sequence[Any], now_ms: int) -> Standing:
    waiting, pending, consumers = (() if isinstance(row, Exception) else row for row in rows)
    members = tuple(Member(_name(each["name"]), int(each["pending"]), int(each["idle"])) for each in consumers)
    oldest = None
    for first in pending:
        position = as_text(first["message_id"])
        age_ms = max(0, now_ms - entry_ms(position))
        oldest = OldestPending(position, _name(first["consumer"]), age_ms, int(first["times_delivered"]))
    return Standing(
        pool, stream, _name(group["name"]), as_text(group["last-delivered-id"]),
        known_lag(group.get("lag"), length, is_behind=bool(waiting)), _age_ms(waiting, now_ms),
        int(group["pending"]), oldest, members,
    )  # fmt: skip


def _name(raw: bytes | str) -> str:
    """Return what somebody called a group or member of it, which need not be a text."""
    return raw.decode(errors="backslashreplace") if isinstance(raw, bytes) else raw


def _age_ms(first: Any, now_ms: int) -> int:
    return max(0, now_ms - entry_ms(as_text(first[0][0]))) if first else 0


async def _ask(pipe: Any) -> Any:
    """Run a pipeline; what is not there is an error in its place. Raises StoreUnavailable."""
    try:
        rows = await pipe.execute(raise_on_error=False)
    except LOST as error:
        raise StoreUnavailable(str(error)) from error
    for row in rows:
        if isinstance(row, LOST):
            raise StoreUnavailable(str(row)) from row
        if isinstance(row, Exception) and not isinstance(row, ResponseError):
            raise row
    return rows
