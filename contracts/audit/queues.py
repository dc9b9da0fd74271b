"""Is each delivery that waits where it is sent from? Beside `contracts.audit.verify`; needs no log to know.

Promises: each batch is one transaction, so a delivery that is planned, claimed or settled meanwhile gives no finding.
"""

from contracts.audit.findings import Projection
from contracts.audit.log_audit import LogAudit
from contracts.audit.mending import Mender
from contracts.store import Store
from contracts.store.log import Poison
from contracts.wire import Entry


class QueueAudit:
    """One audit of one pool."""

    def __init__(self, store: Store, pool: str) -> None:
        self._store, self._pool = store, pool
        self._lost: list[str] = []  # as they were when it was compared

    async def begin(self, *, is_whole: bool) -> None:
        """Nothing is needed of before."""

    def take(self, entry: Entry | Poison) -> None:
        """Nothing is needed of the log."""

    async def compare(self) -> Projection:
        """Look at every delivery there is. Raises Unavailable."""
        found, self._lost = Projection("queues"), []
        async for batch in self._store.audit.queued(self._pool):
            for each in batch:
                found.rows += 1
                if not each.is_queued:
                    self._lost.append(each.id)
                    found.differs(each.id, f"it is {each.state}, and in no queue: nobody will send it")
        return found

    async def mend(self, mender: Mender, audit: LogAudit) -> None:
        """Queue what is in no queue. Raises Unavailable."""
        for delivery_id in self._lost:
            await mender.queued("queues", delivery_id, audit.position)
