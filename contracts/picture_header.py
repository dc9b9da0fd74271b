"""What a file is and how large its picture is, by its first bytes. Pure; nothing is decoded.

Knows PNG, JPEG, GIF, WebP and BMP. Promises: total over all bytes; reads at most HEADER_BYTES; of several sizes that
a header gives it tells the largest, since some decoders make room for that; a picture whose size cannot be told is of
no size, and so too large for any limit that is asked about. Does not promise to see a frame of an animation that begins
further on.
"""

import struct
from dataclasses import dataclass

HEADER_BYTES = 1 << 20  # a JPEG may carry much about itself before it tells its size
_JPEG_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD8)})
_JPEG_SCAN = 0xDA
_GIF_EXTENSION, _GIF_FRAME, _GIF_END = 0x21, 0x2C, 0x3B
_BMP_HEADERS = frozenset({12, 16, 40, 52, 56, 64, 108, 124})


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a known kind; `pixels` is None when its header does not tell."""

    media_type: str
    ending: str
    pixels: int | None


def read_picture(head: bytes) -> Picture | None:
    """Return what the first HEADER_BYTES of a file say; None for what is no picture we know.

    >>> read_picture(b"BM" + bytes(12) + struct.pack("<Iii", 40, 640, 480))
    Picture(media_type='image/bmp', ending='.bmp', pixels=307200)
    """
    for start, further, more, media_type, ending, measure in _KINDS:
        if head.startswith(start) and head[further:].startswith(more):
            try:
                width, height = measure(head)
            except (struct.error, IndexError):
                return Picture(media_type, ending, None)
            return Picture(media_type, ending, abs(width * height) or None)
    return None


def _png(head: bytes) -> tuple[int, int]:
    if head[12:16] != b"IHDR":
        raise IndexError
    return struct.unpack_from(">II", head, 16)


def _gif(head: bytes) -> tuple[int, int]:
    """Return the canvas, with all frames that begin in `head`: decoders let a frame grow it."""
    width, height = struct.unpack_from("<HH", head, 6)
    at, frames = 13 + _colours(head[10]), 0
    try:
        while (kind := head[at]) != _GIF_END:
            if kind == _GIF_FRAME:
                left, top, wide, high, flags = struct.unpack_from("<HHHHB", head, at + 1)
                width, height, frames = max(width, left + wide), max(height, top + high), frames + 1
                at = _behind_blocks(head, at + 11 + _colours(flags))
            else:
                at = _behind_blocks(head, at + (2 if kind == _GIF_EXTENSION else 1))
    except (IndexError, struct.error):
        pass  # it goes on behind what we look at, or is broken
    if not frames:
        raise IndexError
    return width, height


def _colours(flags: int) -> int:
    """Return how long a GIF's table of colours is."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _behind_blocks(head: bytes, at: int) -> int:
    while head[at]:
        at += head[at] + 1
    return at + 1


def _bmp(head: bytes) -> tuple[int, int]:
    header_bytes = head[14]
    if header_bytes not in _BMP_HEADERS:
        raise IndexError
    return struct.unpack_from("<HH" if header_bytes == 12 else "<ii", head, 18)


def _webp(head: bytes) -> tuple[int, int]:
    match head[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(_need(head, 27, 3), "little")
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", head, 21)
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", head, 26)
            return width & 0x3FFF, height & 0x3FFF
    raise IndexError


def _jpeg(head: bytes) -> tuple[int, int]:
    """Return the largest size that stands before the picture itself."""
    at, width, height = 2, 0, 0
    while True:
        if head[at] != 0xFF:
            raise IndexError
        while head[at] == 0xFF:
            at += 1
        marker = head[at]
        at += 1
        if marker in _JPEG_BARE:
            continue
        if marker == _JPEG_SCAN:
            return width, height
        if marker in _JPEG_SIZES:
            high, wide = struct.unpack_from(">HH", head, at + 3)
            width, height = max(width, wide), max(height, high)
        (length,) = struct.unpack_from(">H", head, at)
        at += max(2, length)


def _need(head: bytes, at: int, count: int) -> bytes:
    if len(head) < at + count:
        raise IndexError
    return head[at : at + count]


_KINDS = (  # how it begins, what stands where further on, and what that is
    (b"\x89PNG\r\n\x1a\n", 0, b"", "image/png", ".png", _png),
    (b"\xff\xd8\xff", 0, b"", "image/jpeg", ".jpg", _jpeg),
    (b"GIF8", 0, b"", "image/gif", ".gif", _gif),
    (b"RIFF", 8, b"WEBP", "image/webp", ".webp", _webp),
    (b"BM", 15, bytes(3), "image/bmp", ".bmp", _bmp),
)
