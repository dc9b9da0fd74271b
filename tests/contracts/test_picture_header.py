"""What the first bytes of a file say about its picture, beside what Pillow reads."""

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from contracts.picture_header import Picture, read_picture


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


@pytest.mark.parametrize("data", [b"", b"BM is a text", b"RIFF\0\0\0\0WAVEfmt ", b"%PDF-1.7", b"GIF7"])
def test_other_files_are_no_pictures(data: bytes) -> None:
    assert read_picture(data) is None


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "BMP"])
def test_a_picture_that_is_cut_off_tells_no_size(form: str) -> None:
    picture = read_picture(made(form, 50, 50)[:15])
    assert picture is None or picture.pixels is None


@given(
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF\0\0\0\0WEBP", b"BM"]),
    st.binary(max_size=64),
)
def test_any_bytes_have_an_answer(start: bytes, rest: bytes) -> None:
    picture = read_picture(start + rest)
    assert picture is None or picture.pixels is None or picture.pixels > 0
