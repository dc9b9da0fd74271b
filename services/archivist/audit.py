"""Are the lists from which jobs are forgotten what the log says? Beside `contracts.audit.verify`.

A job that has ended and is in none would be kept for ever, with all that its tenant wrote.
Promises: exact as of the moment at which the audit began, whatever is sealed and forgotten meanwhile. Where the log
begins later than the pool did, nothing is claimed.
"""

from contracts.audit import Mender, Projection
from contracts.audit.log_audit import LogAudit
from contracts.positions import entry_key, entry_ms
from contracts.store import Store
from contracts.store.audit import EndedLists
from contracts.store.log import Poison
from contracts.wire import Entry
from services.archivist.sealing import KIND_OF

_FORGOTTEN = "job.forgotten"


class RetentionAudit:
    """One audit of one pool."""

    def __init__(self, store: Store, pool: str) -> None:
        self._store, self._pool = store, pool
        self._look = EndedLists("", "", {})
        self._expected: dict[str, tuple[str, int]] = {}  # job -> kind, and when it ended
        self._is_known = False
        self._wrong: list[str] = []

    async def begin(self, *, is_whole: bool) -> None:
        """Take the lists as they are now. Raises Unavailable."""
        self._look = await self._store.audit.ended(self._pool)
        self._is_known = is_whole and bool(self._look.upto)

    def take(self, entry: Entry | Poison) -> None:
        """Fold one entry: an end counts from when it is sealed, that a job is forgotten at once."""
        if not self._is_known or isinstance(entry, Poison) or not entry.sequence:
            return
        if entry.type == _FORGOTTEN:
            if entry_key(entry.position) <= entry_key(self._look.position):
                self._expected.pop(entry.subject, None)
        elif (name := entry.type.encode()) in KIND_OF and entry_key(entry.position) <= entry_key(self._look.upto):
            kind = KIND_OF[name]
            if kind is None:
                self._expected.pop(entry.subject, None)
            else:
                self._expected[entry.subject] = (kind, entry_ms(entry.position))

    async def compare(self) -> Projection:
        """Return what came of it."""
        found, listed = Projection("ended"), self._look.listed
        if not self._is_known:
            found.unknown = len(listed)
            return found
        self._wrong = []
        for job_id in sorted(self._expected.keys() | listed.keys()):
            told = self._expected.get(job_id)
            if not found.compare(job_id, told and told[0], listed.get(job_id)):
                self._wrong.append(job_id)
        return found

    async def mend(self, mender: Mender, audit: LogAudit) -> None:
        """List what is missing, take off what should not be there. Raises Unavailable."""
        for job_id in self._wrong:
            kind, ms = self._expected.get(job_id, (None, 0))
            if job_id in audit.hashes.jobs or kind is None:
                await mender.listed(job_id, kind, ms, audit.position)
        if self._wrong:
            await self._look_again(audit)

    async def _look_again(self, audit: LogAudit) -> None:
        """Compare once more with the lists of now; those whose jobs moved meanwhile are the archivist's matter."""
        now = await self._store.audit.ended(self._pool)
        wrong = {job_id for job_id in self._wrong if job_id in audit.hashes.jobs or job_id in now.listed}
        seen = self._look.listed
        for job_id in self._wrong:
            seen.pop(job_id, None)
            if job_id in wrong and job_id in now.listed:
                seen[job_id] = now.listed[job_id]
            elif job_id not in wrong:
                self._expected.pop(job_id, None)
