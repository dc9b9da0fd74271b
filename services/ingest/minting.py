"""Ids and chance of one process; the pure code gets both as arguments."""

import base64
import os
from collections.abc import Callable

from contracts.ids import (
    RANDOM_BITS,
    ArtifactId,
    EndpointId,
    JobId,
    mint_endpoint_id,
    mint_job_id,
    mint_token,
    mint_upload_id,
)


class Mint:
    """Makes new names. Chance comes from the system: an id must not be guessed from another."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._pool = b""
        self._last = (0, 0)

    def _bits(self, count: int) -> int:
        """Return `count` random bits, a multiple of 8. The system is asked for many at once: each call costs."""
        size = count // 8
        if len(self._pool) < size:
            self._pool = os.urandom(4_096)
        taken, self._pool = self._pool[:size], self._pool[size:]
        return int.from_bytes(taken, "big")

    def job_id(self, pool_code: str) -> JobId:
        """Return the id of a new job; ids of one process sort in the order they were minted."""
        real_ms, bits = self._now_ms(), self._bits(80)
        last_ms, last_bits = self._last
        if real_ms <= last_ms:
            # The same millisecond, or a clock that was set back: above the last one by an unguessable step.
            real_ms, bits = last_ms, (last_bits + 1 + self._bits(40)) % (1 << RANDOM_BITS)
        self._last = (real_ms, bits)
        return mint_job_id(real_ms, bits, pool_code)

    def upload_id(self, pool_code: str) -> ArtifactId:
        """Return the id of a file that a caller will send."""
        return mint_upload_id(self._now_ms(), self._bits(80), pool_code)

    def endpoint_id(self) -> EndpointId:
        """Return the id of a new webhook endpoint."""
        return mint_endpoint_id(self._now_ms(), self._bits(80))

    def webhook_secret(self) -> str:
        """Return a new secret as Standard Webhooks write it."""
        return "whsec_" + base64.b64encode(self._bits(256).to_bytes(32, "big")).decode()

    def salt(self) -> str:
        """Return what makes the digest of a body useless for guessing the body."""
        return f"{self._bits(80):020x}"

    def token(self) -> str:
        """Return a short unguessable text."""
        return mint_token(self._bits(80))

    def seed_bits(self) -> int:
        """Return chance for a drawn seed."""
        return self._bits(64)
