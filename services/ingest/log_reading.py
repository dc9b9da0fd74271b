"""Reading what the attempts of a job printed: from the stored log of each that has ended, from the live stream else.

Promises: a place `(fence, offset)` means the same bytes wherever they are read from; reading goes forward only, and a
piece that lies before the place, or behind a hole, is not shown as if it followed.
"""

from dataclasses import dataclass

from contracts.ids import log_id
from contracts.job import TERMINAL, JobState
from contracts.store.live import STORED, Piece, whole_characters
from services.ingest.files import Files, Found


@dataclass(frozen=True, slots=True)
class Place:
    """What has been read: of the attempt with this fence so many bytes, of earlier ones all."""

    fence: int = 1
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.fence}.{self.offset}"

    @property
    def next_attempt(self) -> "Place":
        return Place(self.fence + 1)


def read_place(text: str) -> Place | None:
    """Return the place in `text`; None for anything else.

    >>> read_place("2.4096"), read_place("x")
    (Place(fence=2, offset=4096), None)
    """
    fence, _, offset = text.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= 12 for part in (fence, offset)):
        return None
    return Place(max(1, int(fence)), int(offset))


@dataclass(frozen=True, slots=True)
class Printed:
    """Bytes of one attempt that end between two characters, and the place behind them."""

    fence: int
    offset: int
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    @property
    def after(self) -> Place:
        return Place(self.fence, self.offset + len(self.data))


async def stored(files: Files, tenant_id: str, job_id: str, fence: int) -> Found | None:
    """Return the stored log of an attempt. Raises Problem."""
    return await files.find(log_id(job_id, fence), tenant_id)


async def read_stored(files: Files, found: Found, place: Place) -> Printed | None:
    """Return what a stored log has behind a place, a part at most; None at its end. Raises Problem."""
    content = await files.open(found, place.offset)
    if content is None:
        return None
    try:
        data = await files.ask(content.read) if place.offset < content.size_bytes else b""
        is_last = place.offset + len(data) >= content.size_bytes
    finally:
        content.close()
    return Printed(place.fence, place.offset, data if is_last else whole_characters(data)) if data else None


def follow_on(place: Place, piece: Piece) -> tuple[Printed | None, int]:
    """Return what a piece adds behind a place, and how many bytes are missing between the two."""
    if piece.offset == STORED or piece.fence != place.fence:
        return None, 0
    missing = max(0, piece.offset - place.offset)
    offset = place.offset + missing
    data = piece.data[offset - piece.offset :]
    return (Printed(place.fence, offset, data) if data else None), missing


def is_running(state: JobState, fence: int) -> bool:
    """Tell whether the attempt with this fence may still print."""
    return fence == state.fence and state.status not in TERMINAL
