"""What is kept of an answer, to be shown to the tenant that was sent for. Pure.

Promises: text only, and no more of it than asked for; a few headers that help to find a fault; no secret of the
endpoint, also where its receiver sends back what it was sent: signing secrets and the values of its own headers, which
its tenant is shown masked, too. Whoever is refused an address has been told nothing, so there is nothing to show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from contracts.outbound.answer import Head
from contracts.webhook_headers import MASKED
from services.notifier.attempt.post import Heard, Post

SHOWN = ("content-type", "content-length", "date", "location", "retry-after", "server", "x-request-id")
HEADER_CHARS_MAX = 256
SECRET_CHARS_MIN = 4  # a shorter one guards nothing, and is found in any text
_TEXT = re.compile(
    r"(text/[a-z0-9.+-]+|application/([a-z0-9.-]+\+)?(json|xml)|application/x-www-form-urlencoded)\s*(;.*)?"
)


def take_down(head: Head, body: bytes, post: Post, most: int) -> Heard:
    """Return what is kept of an answer; `body` reaches further than `most` bytes by `longest_secret`, if it is longer.

    A secret that begins before the limit is then whole, and found.
    """
    secrets = sorted(_secrets(post), key=len, reverse=True)
    headers = {name: _masked(head.headers[name], secrets)[:HEADER_CHARS_MAX] for name in SHOWN if name in head.headers}
    text = _text(head, body)
    if text is None:
        return Heard(headers)
    return Heard(headers, _masked(text, secrets).encode()[:most].decode(errors="ignore"))


def longest_secret(post: Post) -> int:
    """Return the bytes of the longest text that must not be shown."""
    return max(map(len, _secrets(post)), default=0)


def _secrets(post: Post) -> Iterator[str]:
    for secret in post.secrets:
        yield secret
        yield secret.removeprefix("whsec_").rstrip("=")
    yield from (value for value in post.headers.values() if len(value) >= SECRET_CHARS_MIN)
    # A scheme before it (Bearer, Basic) is often left out by those who send back what they were sent.
    yield from (value.rpartition(" ")[2] for value in post.headers.values() if " " in value)


def _text(head: Head, body: bytes) -> str | None:
    kind = head.headers.get("content-type", "text/plain").strip().lower()
    if not body or not _TEXT.fullmatch(kind) or head.headers.get("content-encoding", "identity").lower() != "identity":
        return None
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        if error.end < len(body) - 3 and error.reason != "unexpected end of data":
            return None
        text = body[: error.start].decode()
    return None if "\0" in text else text


def _masked(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(secret, MASKED)
    return text
