"""Whether a call of a webhook is to be believed, as Standard Webhooks say.

Promises that a call passes only with a signature over exactly its bytes, judged by the `standardwebhooks` package where
a secret and the age count. Returns why not; never raises for anything that a call can hold.
"""

import base64
import binascii
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError

from services.notifier.attempt import signature

TOLERANCE_S = 300
MISSING = "Missing required headers"
NO_MATCH = "No matching signature found"
MALFORMED = "The signature cannot be read"
_PUBLIC = "whpk_"


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom a receiver believes: the holder of a secret, or of the private half of a public key."""

    secret: str = field(repr=False, default="")
    public_key: bytes = b""
    at_any_time: bool = False  # also what is older than five minutes


def read_public_key(text: str) -> bytes:
    """Return the key in `whpk_<base64>`. Raises ValueError."""
    try:
        key = base64.b64decode(text.strip().removeprefix(_PUBLIC), validate=True)
        Ed25519PublicKey.from_public_bytes(key)
    except (binascii.Error, ValueError):
        raise ValueError("the public key is not whpk_ and the base64 of 32 bytes") from None
    return key


def why_not(trust: Trust, headers: Mapping[str, str], body: bytes) -> str | None:
    """Return why a call is not to be believed; None when it is."""
    named = {name.lower(): value for name, value in headers.items()}
    if not all(named.get(f"webhook-{part}") for part in ("id", "timestamp", "signature")):
        return MISSING
    try:
        if trust.public_key:
            return _by_public_key(trust, named, body)
        return _at_any_time(trust, named, body) if trust.at_any_time else _by_package(trust, named, body)
    except ValueError:  # base64, numbers, text that is no UTF-8
        return MALFORMED


def _by_package(trust: Trust, headers: dict[str, str], body: bytes) -> str | None:
    try:
        Webhook(trust.secret).verify(body, headers, json_parse=False)
    except WebhookVerificationError as fault:
        return str(fault)
    return None


def _at_any_time(trust: Trust, headers: dict[str, str], body: bytes) -> str | None:
    message_id, at_s = headers["webhook-id"], int(headers["webhook-timestamp"])
    is_signed = signature.verify([trust.secret], message_id, at_s, body, headers["webhook-signature"])
    return None if is_signed else NO_MATCH


def _by_public_key(trust: Trust, headers: dict[str, str], body: bytes) -> str | None:
    at_s = int(headers["webhook-timestamp"])
    if not trust.at_any_time and abs(time.time() - at_s) > TOLERANCE_S:
        return "Message timestamp too old" if at_s < time.time() else "Message timestamp too new"
    content = f"{headers['webhook-id']}.{at_s}.".encode() + body
    given = [each.removeprefix("v1a,") for each in headers["webhook-signature"].split() if each.startswith("v1a,")]
    return None if any(_is_signed(trust.public_key, each, content) for each in given) else NO_MATCH


def _is_signed(key: bytes, given: str, content: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(base64.b64decode(given), content)
    except InvalidSignature:
        return False
    return True
