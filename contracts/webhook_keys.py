"""The Ed25519 key that signs webhooks of endpoints that ask for it (`v1a`): one for the installation.

Made of the secret that all processes share, so nothing more has to be kept, and every process has the same one.
Receivers find the public half at `/.well-known/webhook-keys.json` and keep no secret at all.
"""

import base64
import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

PURPOSE = b"webhook-ed25519"
KEY_ROOT = "urls"  # whose text the key is made of; it signs links, too


class WebhookKey:
    """The key pair; `root` is the text of the kept secret `KEY_ROOT`. Its repr shows neither half."""

    def __init__(self, root: bytes) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(hmac.digest(root, PURPOSE, "sha256"))
        self.public = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def sign(self, content: bytes) -> str:
        """Return the signature as Standard Webhooks write it: `v1a,` and base64."""
        return "v1a," + base64.b64encode(self._private.sign(content)).decode()

    def text(self) -> str:
        """Return the public half as Standard Webhooks write it: `whpk_` and base64."""
        return "whpk_" + base64.b64encode(self.public).decode()

    def jwk(self) -> dict[str, str]:
        """Return the public half as a JSON Web Key (RFC 8037); `kid` is its thumbprint (RFC 7638)."""
        x = _base64url(self.public)
        thumb = hashlib.sha256(b'{"crv":"Ed25519","kty":"OKP","x":"' + x.encode() + b'"}').digest()
        return {"kty": "OKP", "crv": "Ed25519", "x": x, "kid": _base64url(thumb), "use": "sig", "alg": "EdDSA"}


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
