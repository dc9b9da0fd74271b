"""What a store of objects must be able to do.

Promises of every implementation: an object is there whole or not at all, and a repeated put replaces it; a key that is
not there is None and no error; whatever else goes wrong is a StoreAway (an OSError), whose text names no credential and
no URL; no call waits without end. A key is made of checked names (`records.py`).
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, Self

CHUNK_BYTES = 256 << 10


class StoreAway(OSError):
    """The store cannot take or give it now; `strerror` is fit for a log and for callers."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EIO, reason)


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as a listing shows it."""

    key: str
    size_bytes: int
    modified_ms: int


class Content(Protocol):
    """An object that is being read. `version` is another one after each change, `size_bytes` that of all of it."""

    size_bytes: int
    version: str

    def read(self) -> bytes:
        """Return the next part, b"" at the end. Raises StoreAway."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *failure: object) -> None: ...


class Objects(Protocol):
    """The five methods."""

    def put_file(self, key: str, source: Path | bytes, mime: str, durable: bool = True) -> None:
        """Store a file, which may be moved, or these bytes; a power cut may take what is not `durable`.

        Raises StoreAway.
        """

    def get(self, key: str, start: int = 0, end: int | None = None) -> Content | None:
        """Open an object, or bytes `start` to `end` of it. Raises StoreAway."""

    def sign(self, method: Literal["GET", "HEAD", "PUT"], key: str, seconds: int) -> str | None:
        """Return a URL that opens this one object without a key; None where only we can serve it."""

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is no error. Raises StoreAway."""

    def list(self, prefix: str) -> Iterator[Stored]:
        """List the objects of a folder (`a/b/`) and below, in no order. Raises StoreAway."""
