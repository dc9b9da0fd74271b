"""Reading answers: any bytes, cut anywhere, and never more than belongs to the answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.outbound.answer import HEAD_BYTES_MAX, AnswerReader
from contracts.outbound.terms import HungUp, Malformed

OK = b"HTTP/1.1 200 OK\r\n"


def read(*pieces: bytes, closes: bool = False) -> tuple[AnswerReader, bytes]:
    reader = AnswerReader()
    body = b"".join(reader.feed(piece) for piece in pieces)
    if closes:
        reader.end()
    return reader, body


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (OK + b"Content-Length: 3\r\n\r\nabc", 200, b"abc"),
        (OK + b"Content-Length: 0\r\n\r\n", 200, b""),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: x\r\n\r\n", 200, b"abcde"),
        (OK + b"Transfer-Encoding: gzip, Chunked\r\n\r\n1\r\nz\r\n0\r\n\r\n", 200, b"z"),
        (b"HTTP/1.1 204\r\nContent-Length: 5\r\n\r\n", 204, b""),
        (b"HTTP/1.0 410 Gone for good\r\nContent-Length: 1\r\n\r\nx", 410, b"x"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nA: b\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n", 200, b""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_an_answer_is_read_the_same_wherever_it_is_cut(answer: bytes, status: int, body: bytes, size: int) -> None:
    pieces = [answer[at : at + size] for at in range(0, len(answer), size)]
    reader, read_body = read(*pieces)
    assert reader.head is not None
    assert (reader.head.status, read_body, reader.complete, reader.has_excess) == (status, body, True, False)


def test_without_a_length_the_answer_ends_with_the_connection() -> None:
    reader, body = read(OK + b"\r\nab", b"c", closes=True)
    assert (body, reader.complete) == (b"abc", True)


@pytest.mark.parametrize(
    "answer", [b"", OK, OK + b"Content-Length: 2\r\n\r\na", OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n"]
)
def test_an_answer_cut_short_is_no_answer(answer: bytes) -> None:
    with pytest.raises(HungUp):
        read(answer, closes=True)


@pytest.mark.parametrize(
    "answer",
    [
        b"220 mail.example ESMTP\r\n", b"\x15\x03\x01", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 20\r\n\r\n",
        OK + b"Content-Length: -1\r\n\r\n", OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        OK + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", b"RTSP/1.0 200 OK\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", b"ICE/1.0 200 OK\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nz\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc",
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * HEAD_BYTES_MAX,
        OK + b"X: " + b"x" * HEAD_BYTES_MAX, (b"HTTP/1.1 100 Continue\r\n\r\n") * 2_000,
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * HEAD_BYTES_MAX,
    ],
)  # fmt: skip
def test_what_is_no_answer_is_told_at_once_and_nothing_endless_is_kept(answer: bytes) -> None:
    """Field case 99: endless headers, interim answers, size lines and trailers all end."""
    with pytest.raises(Malformed):
        read(answer)


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 1\r\n\r\nx", b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"]
)
def test_what_follows_the_answer_is_seen_and_is_not_its_body(framing: bytes) -> None:
    """A second answer that nobody asked for must not be taken for the answer to the next request."""
    reader, body = read(OK + framing + OK)
    assert (body, reader.has_excess) == (b"x", True)
    later = AnswerReader()
    assert (later.feed(OK + framing), later.has_excess, later.feed(b"H"), later.has_excess) == (b"x", False, b"", True)


@given(
    st.lists(st.binary() | st.sampled_from([OK, b"\r\n", b"Transfer-Encoding: chunked\r\n", b"5\r\n", b"0\r\n\r\n"]))
)
def test_any_bytes_are_read_or_malformed(pieces: list[bytes]) -> None:
    reader = AnswerReader()
    try:
        for piece in pieces:
            assert len(reader.feed(piece)) <= sum(map(len, pieces))
    except Malformed:
        pass
