"""The redis client of a process: where the store is, how long a command may take, how often it is sent again.

Short time-outs, finite retries (endless ones hang for ever on a dead master). Every write is idempotent, so a repeat
by the client is harmless. What is called often, or may block, has a `Channel` of its own through the same pool.
"""

import functools
from collections.abc import Awaitable, Sequence
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import (
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from contracts.errors import ConfigError, StoreFull, StoreUnavailable
from contracts.store.connections import connection_class

COMMAND_TIMEOUT_S = 5.0
_ELSEWHERE = (ReadOnlyError, MasterDownError, TryAgainError, ClusterDownError)
# AttributeError and TypeError: redis-py 8.1 leaks them from a connection that was closed under it (its issue 4287).
LOST = (ConnectionError, TimeoutError, OSError, AttributeError, TypeError, *_ELSEWHERE)
# How an error begins that says "not now" and not "not like this". MISCONF: the disk of the store is full or broken, so
# it takes no write; BUSY: a function of somebody else runs; NOREPLICAS: too few replicas follow.
PASSING = ("LOADING", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "NOREPLICAS", "BUSY ")


def command_client(url: str, *, retries: int = 2, connections: int = 32) -> Redis:
    """Open the client for commands; its pool waits instead of raising when all connections are busy."""
    check_url(url)
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=10,
        socket_timeout=COMMAND_TIMEOUT_S,
        socket_connect_timeout=2.0,
        retry=retry_schedule(retries),
        retry_on_error=list(_ELSEWHERE),
        driver_info=_driver(),
    )
    pool.connection_class = connection_class(pool.connection_class)
    return Redis(connection_pool=pool)


@functools.cache  # else made for each connection: it reads and parses the metadata of a package
def _driver() -> DriverInfo:
    return DriverInfo()


def retry_schedule(retries: int) -> Retry:
    """Return the schedule by which a lost command is sent again; `retries` 0: never."""
    return Retry(ExponentialWithJitterBackoff(base=0.02, cap=0.5), retries, LOST)  # type: ignore[arg-type]


def check_url(url: str) -> None:
    """Refuse what is not proven to work. Raises ConfigError, which never repeats a password."""
    scheme, separator, _ = url.partition("://")
    if scheme not in ("redis", "rediss", "unix") or not separator:
        told = f"{scheme}://" if separator and scheme.replace("+", "").isalpha() else "this"
        raise ConfigError(
            [f"HEADRACE_REDIS__URL: {told} is not supported; use redis://, rediss:// or unix:// of one server"]
        )
    try:
        parse_url(url)
    except (ValueError, TypeError):  # its text may hold a part of the password
        raise ConfigError(
            ["HEADRACE_REDIS__URL: cannot be read; write redis://host:6379/0, and / @ # of a password as %2F %40 %23"]
        ) from None


def as_text(raw: bytes | str) -> str:
    """Decode what the server sent."""
    return raw.decode() if isinstance(raw, bytes) else raw


def server_ms(told: Sequence[Any]) -> int:
    """Return what `TIME` told.

    >>> server_ms((7, 8999))
    7008
    """
    seconds, micros = told
    return int(seconds) * 1000 + int(micros) // 1000


async def ask(call: Awaitable[Any]) -> Any:
    """Await a call of the client. Raises StoreUnavailable."""
    try:
        return await call
    except (*LOST, ResponseError) as error:
        raise StoreUnavailable(str(error)) from error


async def read_hash(client: Redis, key: str) -> dict[str, str]:
    """Return a hash as texts; {} when there is none. Raises StoreUnavailable."""
    raw = await ask(client.hgetall(key))
    return {as_text(name): as_text(value) for name, value in raw.items()}


async def read_text(client: Redis, key: str) -> str | None:
    """Return a string key as text, None when there is none. Raises StoreUnavailable."""
    raw = await ask(client.get(key))
    return None if raw is None else as_text(raw)


async def read_members(client: Redis, key: str) -> list[str]:
    """Return the members of a set as sorted texts. Raises StoreUnavailable."""
    raw = await ask(client.smembers(key))
    return sorted(as_text(member) for member in raw)


def as_store_error(error: Exception) -> Exception:
    """Turn an error of the client into ours; anything that is neither loss nor fullness is returned as it is."""
    if isinstance(error, OutOfMemoryError) or str(error).startswith("OOM"):
        return StoreFull(str(error))
    if isinstance(error, LOST):
        return StoreUnavailable(f"{type(error).__name__}: {error}")
    if isinstance(error, ResponseError) and str(error).startswith(PASSING):
        return StoreUnavailable(str(error))
    return error
