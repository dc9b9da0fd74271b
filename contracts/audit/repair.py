"""Repairs a pool: verifies it, refuses where the log itself is not what it was, makes the rest of the live state anew.

Promises: idempotent, and safe to be killed at any point: each row is one call, and what is done is found done. What
neither log nor archive tells (a body that was never archived, a delivery that may have arrived) is left and named.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from contracts.archive import Archive
from contracts.audit.beside import Beside
from contracts.audit.mending import Mended, Mender, Replan
from contracts.audit.scope import Scope
from contracts.audit.verdict import Verdict
from contracts.audit.verify import EVERYTHING, Verifier
from contracts.store import Store

CHAIN = "the archive, or the log beside it, is not what was sealed: nothing is made of it"
LOG = "the log has entries that cannot be read, or stand in no order: nobody knows whose they are"


@dataclass(frozen=True, slots=True)
class Repaired:
    """How it was, what was done, and how it is now."""

    before: Verdict
    done: Mended
    after: Verdict

    def as_json(self) -> dict[str, Any]:
        """Return the verdict of now, with what was done."""
        return self.after.as_json() | {"repair": self.done.as_json()}


async def repair(
    store: Store, archive: Archive, pool: str, scope: Scope = EVERYTHING, beside: Sequence[Beside] = (),
    replan: Replan | None = None, reason: str = "", by: str = "",
) -> Repaired:  # fmt: skip
    """Repair a pool, or a part of it. Raises Unavailable."""
    mender = Mender(store, pool, await store.epoch(pool), _mint, replan, reason, by, partial(archive.body, pool))
    verifier = Verifier(store, archive, pool, scope, beside)
    before = await verifier.run()
    if not before.chain_ok or not verifier.audit.is_sound:
        mender.done.refused = LOG if before.chain_ok else CHAIN
        return Repaired(before, mender.done, before)
    if not before.ok:
        await record(store, before, by)  # also moves the log on, so that a snapshot can be kept behind the old one
        await verifier.mend(mender)
    return Repaired(before, mender.done, await verifier.compare())


async def record(store: Store, verdict: Verdict, by: str) -> None:
    """Write what came of an audit into the log it was of. Raises Unavailable."""
    if verdict.scope == EVERYTHING:
        await store.repairs.audited(verdict.pool, verdict.as_event(by), _mint())


def _mint() -> str:
    return secrets.token_hex(8)
