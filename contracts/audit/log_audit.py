"""Folds a log entry by entry and notices what cannot be. Pure.

Promises: an entry that is missing, doubled, out of order, unreadable or not possible in its job's state is found, with
its place; what is noticed changes nothing about how the rest is read.
"""

from contracts.audit.chain_audit import ChainAudit
from contracts.audit.findings import Findings
from contracts.audit.job_hashes import JOB_TYPES, JobHashes
from contracts.errors import Corrupt
from contracts.events import JobEventRejected, JobForgotten, LogCheckpointed, WebhookAttempted
from contracts.positions import START, entry_key
from contracts.store.log import Poison
from contracts.store.records import Record
from contracts.wire import Entry


class LogAudit:
    """One log, from its beginning on, or from where it is kept."""

    def __init__(self, findings: Findings, chain: ChainAudit, public: bytes | None, *, is_whole: bool) -> None:
        self._findings, self._chain, self._public = findings, chain, public
        self.hashes = JobHashes(is_whole=is_whole)
        self.position, self.count = START, 0
        # job -> delivery -> its newest attempt, and whether that was the last
        self.attempts: dict[str, dict[str, tuple[int, bool]]] = {}

    def take(self, record: Record) -> None:
        """Fold one entry."""
        if entry_key(record.position) <= entry_key(self.position):
            self._findings.add(record.position, "out_of_order", f"it stands after {self.position}")
        self.position, self.count = record.position, self.count + 1
        entry = record.entry()
        if isinstance(entry, Poison):
            self._findings.add(record.position, "unreadable", entry.reason)
        elif entry.sequence:
            for kind, what in self.hashes.apply(entry):
                self._findings.add(record.position, kind, what)
            if entry.type == JobForgotten.TYPE:
                self.attempts.pop(entry.subject, None)
        else:
            self._other(entry)

    def _other(self, entry: Entry) -> None:
        if entry.type in JOB_TYPES and entry.type != JobEventRejected.TYPE:
            self._findings.add(entry.position, "sequence_gap", f"{entry.subject}: {entry.type} has no number")
        try:
            event = entry.event()
        except Corrupt as error:
            self._findings.add(entry.position, "unreadable", error.reason)
            return
        if isinstance(event, LogCheckpointed):
            self._chain.checkpoint(entry.position, event, self._public)
        elif isinstance(event, WebhookAttempted):
            self._attempted(entry.position, event)

    def _attempted(self, position: str, event: WebhookAttempted) -> None:
        if event.job_id not in self.hashes.jobs:  # forgotten, or an operation's: nothing is kept of it
            return
        of_job = self.attempts.setdefault(event.job_id, {})
        known = of_job.get(event.delivery_id, (0, False))[0]
        if event.attempt <= known:
            what = f"{event.delivery_id}: attempt {event.attempt} follows attempt {known}"
            self._findings.add(position, "doubled_delivery", what)
        of_job[event.delivery_id] = (max(known, event.attempt), event.next_at_ms is None)
