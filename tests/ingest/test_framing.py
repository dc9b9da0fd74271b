"""Borders of requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.ingest.edge.framing import MAX_CHUNKS, MAX_HEAD_BYTES, BadFraming, RequestFraming

GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def post(*lines: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join([b"POST / HTTP/1.1", b"Host: a", *lines, b"", b""]) + body


def feed_in_steps(framing: RequestFraming, raw: bytes, step: int) -> None:
    for at in range(0, len(raw), step):
        framing.feed(raw[at : at + step])


AMBIGUOUS = {
    "no version": b"GET /healthz\r\nHost: a\r\n\r\n",
    "version 0.9": b"GET /healthz HTTP/0.9\r\nHost: a\r\n\r\n",
    "version 2": b"GET /healthz HTTP/2.0\r\nHost: a\r\n\r\n",
    "both lengths": post(b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "two equal lengths": post(b"Content-Length: 1", b"content-length: 1", body=b"a"),
    "two lengths": post(b"Content-Length: 1", b"Content-Length: 2", body=b"ab"),
    "list of lengths": post(b"Content-Length: 1, 1", body=b"a"),
    "signed length": post(b"Content-Length: +1", body=b"a"),
    "empty length": post(b"Content-Length:"),
    "two codings": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
    "list of codings": post(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
    "unknown coding": post(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"),
    "chunked in HTTP/1.0": CHUNKED.replace(b"1.1", b"1.0"),
    "bare CR in a value": post(b"X: a\rContent-Length: 3"),
    "bare CR in an empty value": post(b"X:\rContent-Length: 3"),
    "bare LF": post(b"X: a\nContent-Length: 3"),
    "folded line": post(b"X: a\r\n b"),
    "NUL": post(b"X: a\0b"),
    "LF in a chunk extension": CHUNKED + b"1;a\nb\r\nx\r\n0\r\n\r\n",
    "bare LF after a chunk size": CHUNKED + b"1\nx\r\n0\r\n\r\n",
    "bare CR in a chunk line": CHUNKED + b"1\rx\r\n0\r\n\r\n",
    "signed chunk size": CHUNKED + b"+1\r\nx\r\n0\r\n\r\n",
    "huge chunk size": CHUNKED + b"fffffffff\r\n",
    "chunk longer than its size": CHUNKED + b"1\r\nxy\r\n0\r\n\r\n",
    "trailers": CHUNKED + b"1\r\nx\r\n0\r\nX: y\r\n\r\n",
    "an endless chunk line": CHUNKED + b"1;" + b"a" * 300,
    "dust of chunks": CHUNKED + b"1\r\nx\r\n" * (MAX_CHUNKS + 1),
    "a head without end": b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 4_000,
    "TLS on the plain port": b"\x16\x03\x01\x02\x00\x01",
    "another expectation": post(b"Expect: 200-maybe"),
}


@pytest.mark.parametrize("raw", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_an_ambiguous_border_is_refused_however_it_is_cut(raw: bytes, step: int) -> None:
    """Field case 6: the same verdict whether the bytes arrive at once or one by one."""
    with pytest.raises(BadFraming):
        feed_in_steps(RequestFraming(), raw, step)


def test_a_head_at_the_limit_passes_and_one_byte_more_does_not() -> None:
    frame = b"GET / HTTP/1.1\r\nX: \r\n\r\n"
    fits = frame.replace(b"X: ", b"X: " + b"y" * (MAX_HEAD_BYTES - len(frame)))

    RequestFraming().feed(fits)
    with pytest.raises(BadFraming) as caught:
        RequestFraming().feed(fits.replace(b"y", b"yy", 1))
    assert caught.value.status == 431


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    body = draw(st.binary(max_size=60))
    kind = draw(st.sampled_from(["none", "length", "chunked"]))
    if kind == "none":
        return GET
    if kind == "length":
        return post(b"Content-Length: %d" % len(body), body=body)
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=4)))
    parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    chunks = b"".join(b"%x;e=1\r\n%s\r\n" % (len(part), part) for part in parts if part)
    return CHUNKED + chunks + b"0\r\n\r\n"


@given(st.lists(requests(), min_size=1, max_size=4), st.integers(1, 40))
def test_ordinary_requests_end_on_their_borders_however_they_are_cut(stream: list[bytes], step: int) -> None:
    framing = RequestFraming()

    feed_in_steps(framing, b"".join(stream), step)

    assert not framing.mid_head
    assert not framing.mid_body


def test_it_knows_whether_a_head_or_a_body_is_under_way() -> None:
    framing = RequestFraming()

    framing.feed(b"POST / HT")
    assert (framing.mid_head, framing.mid_body) == (True, False)
    framing.feed(b"TP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx")
    assert (framing.mid_head, framing.mid_body) == (False, True)
    framing.feed(b"y")
    assert (framing.mid_head, framing.mid_body) == (False, False)
