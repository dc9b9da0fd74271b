"""Cursors, signed links and conditional reads: total over what callers may send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.signed_url import is_valid, sign_path
from services.ingest.cursor import BadCursor, seal, unseal
from services.ingest.edge.conditional import ByteRange, Unsatisfiable, is_unchanged, parse_range

SECRET = b"s" * 32
PATH = "/v1/artifacts/art_x/content"


@given(st.text(max_size=40), st.text(st.characters(codec="utf-8"), max_size=40))
def test_a_cursor_opens_for_its_own_question(question: str, place: str) -> None:
    assert unseal(SECRET, "q" + question, seal(SECRET, "q" + question, place)) == place


@pytest.mark.parametrize(
    "cursor", ["", "x", "é", "=" * 8, "a" * 4_000, seal(b"other", "q", "p"), seal(SECRET, "other", "p")]
)
def test_any_other_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursor):
        unseal(SECRET, "q", cursor)


def test_a_link_opens_one_path_until_it_expires() -> None:
    query = sign_path(SECRET, PATH, 1_000).partition("?")[2]
    expires, signature = (part.partition("=")[2] for part in query.split("&"))

    assert is_valid(SECRET, PATH, expires, signature, 999)
    assert not is_valid(SECRET, PATH, expires, signature, 1_000)
    assert not is_valid(SECRET, PATH, "1001", signature, 999)
    assert not is_valid(SECRET, PATH + "2", expires, signature, 999)
    assert not is_valid(b"other", PATH, expires, signature, 999)


@given(st.text(max_size=20), st.text(max_size=80))
def test_a_made_up_signature_never_opens_and_never_fails(expires: str, signature: str) -> None:
    assert not is_valid(SECRET, PATH, expires, signature, 0)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("bytes=0-4", ByteRange(0, 5)),
        ("bytes=5-", ByteRange(5, 10)),
        ("bytes=-3", ByteRange(7, 10)),
        ("bytes=-30", ByteRange(0, 10)),
        ("bytes=0-99", ByteRange(0, 10)),
        ("Bytes = 1 - 2 ", ByteRange(1, 3)),
        ("bytes=4-2", None),
        ("bytes=0-1,3-4", None),
        ("bytes=-", None),
        ("lines=1-2", None),
        ("bytes=٣-٤", None),
    ],
)
def test_a_range_is_read_or_ignored(header: str | None, expected: ByteRange | None) -> None:
    assert parse_range(header, 10) == expected


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=10-12", "bytes=-0"])
def test_a_range_outside_the_content_is_refused(header: str) -> None:
    with pytest.raises(Unsatisfiable):
        parse_range(header, 10)


@pytest.mark.parametrize(
    ("header", "unchanged"),
    [
        (None, False),
        ('"17"', True),
        ('W/"17"', True),
        ('"1", "17"', True),
        ("*", True),
        ('"171"', False),
        ("17", False),
    ],
)
def test_a_tag_is_compared_weakly_and_whole(header: str | None, unchanged: bool) -> None:
    assert is_unchanged(header, '"17"') is unchanged
