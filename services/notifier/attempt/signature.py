"""Standard Webhooks signatures: `v1,` + base64(HMAC-SHA256(secret, `id.timestamp.body`)), and `v1a,` with Ed25519.

Promises: signs the exact bytes that are sent; every secret in use signs, so receivers that hold either the
old or the new one verify through a rotation. Secrets never appear in an error text.
Does not promise: freshness. The caller passes the time of the attempt; receivers allow five minutes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from contracts.webhook_keys import WebhookKey

_PREFIX = "whsec_"
_SECRET_BYTES = range(16, 129)


def parse_secret(secret: str) -> bytes:
    """Return the key inside `whsec_<base64>`; the prefix and the padding may be missing.

    Raises:
        ValueError: not base64, or not 16 to 128 bytes. A short key would sign, and could be guessed.
    """
    text = secret.removeprefix(_PREFIX).rstrip("=")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("webhook secret is not base64") from None
    if len(key) not in _SECRET_BYTES:
        raise ValueError(f"webhook secret holds {len(key)} bytes, expected 16 to 128")
    return key


def sign(
    secrets: Sequence[str], message_id: str, timestamp_s: int, body: bytes, key: WebhookKey | None = None
) -> str:  # fmt: skip
    """Return the value of `webhook-signature`: one `v1,` signature per secret, in order, then that of the key if any.

    Raises:
        ValueError: no secret, an unusable one, or a dot in the id (the parts could then be shifted).
    """
    if not secrets:
        raise ValueError("no webhook secret to sign with")
    if "." in message_id:
        raise ValueError("a webhook id must not contain a dot")
    content = f"{message_id}.{timestamp_s}.".encode() + body
    signatures = [_sign_v1(parse_secret(secret), content) for secret in secrets]
    return " ".join(signatures if key is None else [*signatures, key.sign(content)])


def verify(secrets: Sequence[str], message_id: str, timestamp_s: int, body: bytes, signature: str) -> bool:
    """Tell whether one of the secrets made one of the signatures in the header."""
    expected = sign(secrets, message_id, timestamp_s, body).encode().split()
    given = signature.encode().split()
    return any(hmac.compare_digest(mine, theirs) for mine in expected for theirs in given)


def _sign_v1(key: bytes, content: bytes) -> str:
    return "v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
