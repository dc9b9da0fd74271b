"""Opaque list cursors: a place in a list, bound to the question it belongs to.

Promises: a cursor works only for the tenant and the filters it was given for, and cannot be made up. The
place itself is no secret. Cursors do not expire; what they point behind may be gone, which a list simply
skips.
"""

import base64
import hashlib
import hmac

_MAC_BYTES = 16
MAX_LENGTH = 4_096  # a place in each of many pools


class BadCursor(ValueError):
    """The text is no cursor of this question."""


def seal(secret: bytes, question: str, place: str) -> str:
    """Return the cursor for `place` in the answer to `question` (tenant, path and filters as one text)."""
    sealed = _mac(secret, question, place) + place.encode()
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def unseal(secret: bytes, question: str, cursor: str) -> str:
    """Return the place in `cursor`. Raises BadCursor when it was made for another question, or by others."""
    if len(cursor) > MAX_LENGTH:
        raise BadCursor("too long")
    try:
        sealed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        mac, place = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:].decode()
    except ValueError:
        raise BadCursor("not a cursor") from None
    if not hmac.compare_digest(mac, _mac(secret, question, place)):
        raise BadCursor("made for another question")
    return place


def _mac(secret: bytes, question: str, place: str) -> bytes:
    # Lengths first, so that no other split of the two texts has the same digest.
    text = f"cursor\n{len(question)}\n{question}\n{place}"
    return hmac.new(secret, text.encode(), hashlib.sha256).digest()[:_MAC_BYTES]
