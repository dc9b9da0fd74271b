"""What an erased job leaves to remove once its body is gone; by whoever was asked, or by the archivist.

Promises: `remove` may be repeated after any failure and comes to the same end; a file that was sent goes with the job
only if no other job that is kept, or was just submitted, names it. What lies in the archive is its leader's to remove.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from contracts.artifacts import Shelf
from contracts.errors import Corrupt
from contracts.events import ArtifactDeleted
from contracts.file_inputs import ARTIFACT_POOLS
from contracts.ids import is_upload_id, job_of, minted_ms
from contracts.store import Store

LATE_MS = 60_000  # for which a worker may go on printing after the end
JUST_SUBMITTED_MS = 60_000  # a job that names a file may not be admitted yet

Run = Callable[..., Awaitable[Any]]  # runs what blocks in a thread


@dataclass(frozen=True, slots=True)
class Erasure:
    """A job's remains. `files`: those that were sent for it, with their pools."""

    job_id: str
    tenant_id: str
    at_ms: int
    key_hash: str | None = None  # of its Idempotency-Key
    files: Mapping[str, str] | None = None
    ended_ms: int | None = None  # None: it was forgotten

    @property
    def silent_from_ms(self) -> int:
        """When it had printed its last, by the store's time."""
        return (self.at_ms if self.ended_ms is None else self.ended_ms) + LATE_MS

    def encode(self) -> str:
        """Return what is kept until all of it is gone: nothing of the job's content."""
        fields = {
            "t": self.tenant_id,
            "at": self.at_ms,
            "key": self.key_hash,
            "files": self.files or {},
            "end": self.ended_ms,
        }
        return orjson.dumps(fields).decode()


@dataclass(frozen=True, slots=True)
class Removed:
    """What was there still."""

    deliveries: int
    artifacts: int
    files: int


def read_erasure(job_id: str, text: str) -> Erasure:
    """Read what was kept. Raises Corrupt."""
    try:
        fields = orjson.loads(text)
        return Erasure(job_id, fields["t"], int(fields["at"]), fields["key"], fields["files"], fields.get("end"))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(job_id, "what is left of it to erase cannot be read") from error


def sent_files(body: bytes) -> dict[str, str]:
    """Return the files that a job's body names and that callers sent, with the pools in whose folders they lie."""
    try:
        pools = orjson.loads(body.partition(b"\n")[0]).get(ARTIFACT_POOLS, {})
    except (orjson.JSONDecodeError, AttributeError):
        return {}
    return {file_id: str(pool) for file_id, pool in pools.items() if is_upload_id(file_id)}


async def remove(store: Store, shelf: Shelf, run: Run, pool: str, erasure: Erasure) -> Removed:
    """Remove all of an erased job but what lies in the archive. Raises Unavailable, and what `run` does."""
    job_id, tenant_id = erasure.job_id, erasure.tenant_id
    deliveries = await store.erasing.deliveries(pool, tenant_id, job_id)
    await store.erasing.live(pool, job_id, erasure.silent_from_ms)
    if erasure.key_hash is not None:
        await store.erasing.claim(tenant_id, erasure.key_hash, job_id)
    artifacts_count = await _remove_folder(store, shelf, run, pool, job_id, erasure)
    return Removed(deliveries, artifacts_count, await remove_files(store, shelf, run, pool, erasure))


async def remove_files(store: Store, shelf: Shelf, run: Run, pool: str, erasure: Erasure) -> int:
    """Remove the files that were sent for an erased job and for no other; returns how many. Raises as `remove`."""
    count = 0
    for file_id, its_pool in (erasure.files or {}).items():
        if not await _is_used(store, erasure, pool, file_id):
            count += await _remove_folder(store, shelf, run, its_pool, job_of(file_id), erasure)
    return count


async def _remove_folder(store: Store, shelf: Shelf, run: Run, pool: str, owner: str, erasure: Erasure) -> int:
    """Say which files go, once each, and remove them: whoever is killed between the two finds them still there."""
    artifact_ids: list[str] = await run(shelf.doom, pool, owner, erasure.tenant_id, erasure.at_ms)
    for artifact_id in artifact_ids:
        event = ArtifactDeleted(artifact_id=artifact_id, job_id=erasure.job_id, tenant_id=erasure.tenant_id)
        await store.note(pool, artifact_id, event, f"deleted {artifact_id}")
    await run(shelf.erase, pool, owner)
    return len(artifact_ids)


async def _is_used(store: Store, erasure: Erasure, pool: str, file_id: str) -> bool:
    others = await store.erasing.leave_file(erasure.tenant_id, file_id, pool, erasure.job_id)
    for other, its_pool in others.items():
        history = await store.jobs.history(its_pool, other, limit=0)
        if history is None and minted_ms(other) > erasure.at_ms - JUST_SUBMITTED_MS:
            return True
        if history is not None and history.state.erased_ms is None:
            return True
    return False
