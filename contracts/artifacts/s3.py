"""Objects in an S3-compatible store, through obstore (extra `s3`).

Promises: credentials come from the environment of the process that opens the store (`AWS_*`, or what the platform
gives it) and appear in nothing that is written or raised here; a large file goes up in parts, which the store shows
only when all are there; a store that stops answering is given up after its time limit.
"""

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self

import obstore
from obstore import exceptions as faults
from obstore.store import S3Store

from contracts.artifacts.objects import CHUNK_BYTES, Content, StoreAway, Stored
from contracts.times import ms_of

PART_BYTES = 8 << 20
PARTS_AT_ONCE = 4
CONNECT_S = 5
WHOLE_REQUEST_S = 3_600  # of one request with its body; a stall is noticed much earlier
RETRIES = 2


class S3Objects:
    """`<prefix>/<key>` in one bucket. `timeout_s`: without a byte for so long, a request has failed."""

    def __init__(self, bucket: str, prefix: str = "", endpoint: str = "", region: str = "", timeout_s: float = 30.0):
        options: dict[str, Any] = {"region": region} if region else {}
        if endpoint:
            options |= {"endpoint": endpoint}
        self._store = S3Store(
            bucket,
            prefix=prefix or None,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=min(CONNECT_S, timeout_s)),
                "read_timeout": timedelta(seconds=timeout_s),
                "timeout": timedelta(seconds=WHOLE_REQUEST_S),
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=timeout_s)},
            **options,
        )

    def put_file(self, key: str, source: Path | bytes, mime: str, durable: bool = True) -> None:
        with _faults():
            obstore.put(
                self._store,
                key,
                source,
                attributes={"Content-Type": mime},
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )

    def get(self, key: str, start: int = 0, end: int | None = None) -> Content | None:
        try:
            with _faults():
                return _S3Content(self._store, key, start, end)
        except FileNotFoundError:
            return None

    def sign(self, method: Literal["GET", "HEAD", "PUT"], key: str, seconds: int) -> str | None:
        with _faults():
            link: str = obstore.sign(self._store, method, key, timedelta(seconds=seconds))
            return link

    def delete(self, key: str) -> None:
        with _faults(), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, key)

    def list(self, prefix: str) -> Iterator[Stored]:
        with _faults():
            for page in obstore.list(self._store, prefix.rstrip("/")):
                for each in page:
                    yield Stored(each["path"], each["size"], ms_of(each["last_modified"]))


class _S3Content:
    def __init__(self, store: S3Store, key: str, start: int, end: int | None) -> None:
        meta, self._chunks = _opened(store, key, start, end)
        self.size_bytes, self.version = int(meta["size"]), (meta["e_tag"] or "").strip('"')

    def read(self) -> bytes:
        if self._chunks is None:
            return b""
        with _faults():
            return bytes(next(self._chunks, b""))

    def close(self) -> None:
        self._chunks = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _opened(store: S3Store, key: str, start: int, end: int | None) -> tuple[Any, Iterator[Any] | None]:
    """Return what is known of an object, and the part that was asked for; None for a part that has no bytes."""
    options: Any = {"range": {"offset": start} if end is None else (start, end)} if start or end is not None else None
    try:
        found = obstore.get(store, key, options=options)
    except faults.BaseError:
        if options is None:
            raise
        meta = obstore.head(store, key)  # S3 refuses a part that begins at the end, and does not say how long it is
        if start < (meta["size"] if end is None else min(end, meta["size"])):
            raise
        return meta, None
    return found.meta, iter(found.stream(min_chunk_size=CHUNK_BYTES))


@contextlib.contextmanager
def _faults() -> Iterator[None]:
    """Let a missing key through and turn every other fault into words of ours: theirs hold URLs and more."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (faults.PermissionDeniedError, faults.UnauthenticatedError):
        raise StoreAway("the object store refuses our credentials") from None
    except (faults.BaseError, OSError) as error:
        raise StoreAway(f"the object store does not answer as it should ({type(error).__name__})") from None
