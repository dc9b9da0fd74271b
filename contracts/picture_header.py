"""What a file is and how large its picture is, by its first bytes. Pure; nothing is decoded.

Knows PNG, JPEG, GIF, WebP and BMP. Promises: total over all bytes; reads at most HEADER_BYTES; a picture whose size
cannot be told is of no size, and so too large for any limit that is asked about.
"""

import struct
from dataclasses import dataclass

HEADER_BYTES = 1 << 20  # a JPEG may carry much about itself before it tells its size
_JPEG_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD8)})


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a known kind; `pixels` is None when its header does not tell."""

    media_type: str
    ending: str
    pixels: int | None


def read_picture(head: bytes) -> Picture | None:
    """Return what the first HEADER_BYTES of a file say; None for what is no picture we know.

    >>> read_picture(b"GIF89a" + (640).to_bytes(2, "little") + (480).to_bytes(2, "little"))
    Picture(media_type='image/gif', ending='.gif', pixels=307200)
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
    return struct.unpack_from("<HH", head, 6)


def _bmp(head: bytes) -> tuple[int, int]:
    (header_bytes,) = struct.unpack_from("<I", head, 14)
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
    at = 2
    while True:
        if head[at] != 0xFF:
            raise IndexError
        while head[at] == 0xFF:
            at += 1
        marker = head[at]
        at += 1
        if marker in _JPEG_BARE:
            continue
        if marker in _JPEG_SIZES:
            height, width = struct.unpack_from(">HH", head, at + 3)
            return width, height
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
    (b"BM", 6, bytes(4), "image/bmp", ".bmp", _bmp),
)
