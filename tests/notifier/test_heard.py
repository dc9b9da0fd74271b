"""What is kept of an answer: text, little of it, and nothing that the endpoint keeps secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.outbound.answer import Head
from services.notifier.attempt.heard import HEADER_CHARS_MAX, longest_secret, take_down
from tests.notifier.test_delivery import SECRET, post

HEADERS = {"Authorization": "Bearer t0ken-of-the-receiver", "X-Short": "ab"}
POST = post("https://app.example/hook", headers=HEADERS)
WINDOW = longest_secret(POST)


def heard(body: bytes, kind: str = "text/plain", most: int = 1_024, **headers: str) -> str | None:
    return take_down(Head(500, {"content-type": kind, **headers}), body, POST, most).body


@pytest.mark.parametrize(
    ("kind", "body", "kept"),
    [
        ("text/html; charset=utf-8", b"<p>no", "<p>no"),
        ("application/json", '{"a":"\U0001f600"}'.encode(), '{"a":"\U0001f600"}'),
        ("application/problem+json", b"{}", "{}"),
        ("image/png", b"text in truth", None),
        ("application/octet-stream", b"text in truth", None),
        ("text/plain", b"\x89PNG\xff\xff\xff\xff\xff", None),
        ("text/plain", b"a\0b", None),
        ("text/plain", b"", None),
    ],
)
def test_only_text_is_kept(kind: str, body: bytes, kept: str | None) -> None:
    assert heard(body, kind) == kept


def test_what_is_compressed_although_nobody_asked_for_it_is_not_kept() -> None:
    assert heard(b"x", **{"content-encoding": "gzip"}) is None


@pytest.mark.parametrize("most", [1, 5, 10, 20, 1_024])
@pytest.mark.parametrize(
    "secret", [SECRET, SECRET.removeprefix("whsec_"), HEADERS["Authorization"], "t0ken-of-the-receiver"]
)
def test_a_secret_that_is_sent_back_is_masked_also_where_the_text_is_cut(secret: str, most: int) -> None:
    """Field cases 110 and 112: a receiver that echoes what it was sent makes no secret readable, not even its start."""
    for before in range(12):
        body = (b"." * before + secret.encode() + b"tail")[: most + WINDOW]
        kept = heard(body, most=most)
        assert kept is not None
        assert len(kept.encode()) <= most
        assert not any(secret[:length] in kept for length in range(4, len(secret)))
    assert "ab" in (heard(b"abc") or ""), "what anybody may say is no secret"


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_give_at_most_so_much(body: bytes, most: int) -> None:
    kept = heard(body[: most + WINDOW], most=most)
    assert kept is None or len(kept.encode()) <= most


def test_few_headers_are_kept_short_and_masked() -> None:
    told = {"set-cookie": "session=1", "server": "x" * 1_000, "location": "https://b.example/?t0ken-of-the-receiver",
            "retry-after": "7", "x-request-id": SECRET}  # fmt: skip
    kept = take_down(Head(302, told), b"", POST, 10).headers
    assert {*kept} == {"server", "location", "retry-after", "x-request-id"}
    assert len(kept["server"]) == HEADER_CHARS_MAX
    assert (kept["location"], kept["x-request-id"]) == ("https://b.example/?***", "***")
