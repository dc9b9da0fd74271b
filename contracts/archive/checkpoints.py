"""Signed checkpoints: that the archive had this digest at this place, said by whoever holds the key. Pure.

Ed25519 over a text that names pool, epoch, position, count and digest, so that a signature of one place is worth
nothing at another. The key is the secret `checkpoints` of the store: 32 bytes as hex digits.
"""

import base64
import binascii
import hashlib
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from contracts.errors import Corrupt
from contracts.events import LogCheckpointed
from contracts.store.log import Poison
from contracts.store.records import Record

SECRET = "checkpoints"  # noqa: S105 - the name under which it is kept
SUBJECT = "log"
_MARK = LogCheckpointed.TYPE.encode()


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs with one key, and checks what was signed with it."""

    seed: bytes

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()

    def sign(self, pool: str, epoch: int, position: str, count: int, digest: str) -> LogCheckpointed:
        """Return the event that says it."""
        signature = Ed25519PrivateKey.from_private_bytes(self.seed).sign(_text(pool, epoch, position, count, digest))
        return LogCheckpointed(
            position=position, hash=digest, count=count, epoch=epoch, key_id=key_id(self.public),
            signature=base64.b64encode(signature).decode(),
        )  # fmt: skip


def is_genuine(pool: str, checkpoint: LogCheckpointed, public: bytes) -> bool:
    """Whether the holder of this key signed this checkpoint for this pool."""
    said = _text(pool, checkpoint.epoch, checkpoint.position, checkpoint.count, checkpoint.hash)
    try:
        signature = base64.b64decode(checkpoint.signature, validate=True)
        Ed25519PublicKey.from_public_bytes(public).verify(signature, said)
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return checkpoint.key_id == key_id(public)


def public_of(seed: str | None) -> bytes:
    """Return the public key of a kept secret; where none is kept, one for which nothing is genuine."""
    return Signer(bytes.fromhex(seed)).public if seed else b""


def read_checkpoint(record: Record) -> LogCheckpointed | None:
    """Return the checkpoint that a record of a log is; None for any other, and for one that cannot be read."""
    if _MARK not in record.fields:  # nearly all of a log, which need not be read for this
        return None
    entry = record.entry()
    try:
        event = None if isinstance(entry, Poison) else entry.event()
    except Corrupt:
        return None
    return event if isinstance(event, LogCheckpointed) else None


def key_id(public: bytes) -> str:
    """Name a public key."""
    return hashlib.sha256(public).hexdigest()[:16]


def _text(pool: str, epoch: int, position: str, count: int, digest: str) -> bytes:
    return f"headrace checkpoint 1\n{pool}\n{epoch}\n{position}\n{count}\n{digest}\n".encode()
