"""Links that work without a key until they expire: `<path>?expires=<unix s>&sig=<hex>`.

Promises: a signature covers exactly one path and one expiry, and is compared in constant time. Whoever
holds the secret may sign (the notifier puts such links into webhooks, ingest checks them). Does not know
what lies at a path, nor read a clock.
"""

import hashlib
import hmac

MAX_LIFE_S = 400 * 86_400


def sign_path(secret: bytes, path: str, expires_s: int) -> str:
    """Return the path with its expiry and signature appended.

    >>> sign_path(b"k", "/v1/artifacts/art_1/content", 1764457200)[:46]
    '/v1/artifacts/art_1/content?expires=1764457200'
    """
    return f"{path}?expires={expires_s}&sig={_signature(secret, path, expires_s)}"


def is_valid(secret: bytes, path: str, expires: str, signature: str, now_s: int) -> bool:
    """Whether `expires` and `signature`, as they came in the query, open `path` at `now_s`."""
    if not (expires.isascii() and expires.isdigit() and len(expires) <= 12):
        return False
    expected = _signature(secret, path, int(expires))
    # Compared before the expiry is looked at, so that time does not tell a wrong signature from an old one.
    is_ours = hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace"))
    return is_ours and now_s < int(expires) <= now_s + MAX_LIFE_S


def _signature(secret: bytes, path: str, expires_s: int) -> str:
    return hmac.new(secret, f"url\n{path}\n{expires_s}".encode(), hashlib.sha256).hexdigest()
