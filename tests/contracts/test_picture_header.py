"""What the first bytes of a file say about its picture, beside what Pillow reads."""

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from contracts.picture_header import HEADER_BYTES, Picture, read_picture


def made(form: str, width: int, height: int, **options: object) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height)).save(out, form, **options)  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.parametrize(
    ("form", "options", "media_type"),
    [
        ("PNG", {}, "image/png"),
        ("JPEG", {}, "image/jpeg"),
        ("JPEG", {"progressive": True, "comment": b"x" * 60_000}, "image/jpeg"),
        ("GIF", {}, "image/gif"),
        ("WEBP", {}, "image/webp"),
        ("WEBP", {"lossless": True}, "image/webp"),
        ("WEBP", {"exif": b"Exif\0\0" + bytes(20)}, "image/webp"),
        ("BMP", {}, "image/bmp"),
    ],
)
def test_size_and_type_are_those_of_the_picture(form: str, options: dict[str, object], media_type: str) -> None:
    picture = read_picture(made(form, 321, 123, **options))
    assert picture is not None
    assert (picture.media_type, picture.pixels) == (media_type, 321 * 123)


def test_a_bomb_shows_in_its_header() -> None:
    """Field case 8: 60,000 x 60,000 pixels in a few bytes."""
    png = bytearray(made("PNG", 1, 1))
    struct.pack_into(">II", png, 16, 60_000, 60_000)
    assert read_picture(bytes(png)) == Picture("image/png", ".png", 3_600_000_000)


def gif_with_frame(canvas: tuple[int, int], frame: tuple[int, int], further: bytes = b"") -> bytes:
    """A GIF that names two sizes; `further` stands before its frame."""
    gif = bytearray(made("GIF", 16, 16))
    at = 13 + (3 << (gif[10] & 7) + 1 if gif[10] & 0x80 else 0)
    struct.pack_into("<HH", gif, 6, *canvas)
    struct.pack_into("<HH", gif, at + 5, *frame)
    return bytes(gif[:at]) + further + bytes(gif[at:])


def jpeg_with_sizes(first: tuple[int, int], then: tuple[int, int]) -> bytes:
    jpeg = made("JPEG", *then)
    frame = struct.pack(">BBHBHHB9x", 0xFF, 0xC0, 17, 8, first[1], first[0], 3)
    return jpeg[:2] + frame + jpeg[2:]


@pytest.mark.parametrize(
    "data",
    [
        gif_with_frame((1, 1), (9_000, 900)),
        gif_with_frame((1, 1), (9_000, 900), b"!\xfe\x03any\x00"),
        jpeg_with_sizes((1, 1), (9_000, 900)),
        made("BMP", 9_000, 900)[:6] + b"\x01" + made("BMP", 9_000, 900)[7:],
    ],
    ids=["gif", "gif with a comment", "jpeg", "bmp with something in its reserved bytes"],
)
def test_no_second_size_hides_a_bomb_from_us_that_a_decoder_makes_room_for(data: bytes) -> None:
    """Field case 8, with a header that shows one size to whoever checks and another to whoever decodes."""
    opened = Image.open(io.BytesIO(data))
    picture = read_picture(data)
    assert opened.size == (9_000, 900)
    assert picture is not None
    assert picture.pixels == 9_000 * 900


def test_a_size_that_stands_behind_what_is_read_is_none() -> None:
    comments = b"!\xfe" + (b"\xff" + bytes(255)) * 4_200 + b"\x00"
    picture = read_picture(gif_with_frame((1, 1), (9_000, 900), comments)[:HEADER_BYTES])
    assert picture == Picture("image/gif", ".gif", None)


@pytest.mark.parametrize("data", [b"", b"BM is a text", b"RIFF\0\0\0\0WAVEfmt ", b"%PDF-1.7", b"GIF7"])
def test_other_files_are_no_pictures(data: bytes) -> None:
    assert read_picture(data) is None


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "BMP"])
def test_a_picture_that_is_cut_off_tells_no_size(form: str) -> None:
    picture = read_picture(made(form, 50, 50)[:15])
    assert picture is None or picture.pixels is None


@given(
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"GIF89a" + bytes(7), b"RIFF\0\0\0\0WEBP", b"BM"]),
    st.binary(max_size=64),
)
def test_any_bytes_have_an_answer(start: bytes, rest: bytes) -> None:
    picture = read_picture(start + rest)
    assert picture is None or picture.pixels is None or picture.pixels > 0
