"""Folds a log entry by entry and notices what cannot be. Pure.

Promises: an entry that is missing, doubled, out of order, unreadable or not possible in its job's state is found, with
its place; what is noticed changes nothing about how the rest is read.
"""

from contracts.audit.chain_audit import ChainAudit
from contracts.audit.deliveries import DeliveryAudit
from contracts.audit.findings import Findings
from contracts.audit.job_hashes import JOB_TYPES, JobHashes
from contracts.errors import Corrupt
from contracts.events import Event, JobEventRejected, JobForgotten, LogCheckpointed, WebhookAttempted, WebhookExhausted
from contracts.positions import START, entry_key
from contracts.store.log import Poison
from contracts.store.records import Record
from contracts.wire import Entry


class Told(Entry):
    """An entry whose event is read once, however many folds ask for it."""

    _event: Event | None

    def event(self) -> Event | None:
        """Decode the data, the first time."""
        try:
            return self._event
        except AttributeError:
            self._event = super().event()
            return self._event


class LogAudit:
    """One log, from its beginning on, or from where it is kept."""

    def __init__(
        self, findings: Findings, chain: ChainAudit, deliveries: DeliveryAudit, public: bytes, *, is_whole: bool
    ) -> None:  # fmt: skip
        self._findings, self._chain, self._public = findings, chain, public
        self.hashes, self.deliveries = JobHashes(is_whole=is_whole), deliveries
        self.faulty: set[str] = set()  # jobs whose own events cannot be right: nothing can be made again of them
        self.is_sound = True  # but for such faults of single jobs
        self.position, self.count = START, 0

    def take(self, record: Record) -> Entry | Poison:
        """Fold one entry, and return it."""
        if entry_key(record.position) <= entry_key(self.position):
            self._blame(record.position, "out_of_order", f"it stands after {self.position}")
        self.position, self.count = record.position, self.count + 1
        entry = record.entry()
        if isinstance(entry, Poison):
            self._blame(record.position, "unreadable", entry.reason)
            return entry
        told = Told(*entry)
        if told.sequence:
            self._of_job(told)
        else:
            self._other(told)
        return told

    def pass_by(self, position: str) -> None:
        """Pass an entry that is not asked for."""
        self.position = position

    def _of_job(self, entry: Entry) -> None:
        for kind, what in self.hashes.apply(entry):
            self._findings.add(entry.position, kind, what)
            self.faulty.add(entry.subject)
        if entry.type == JobForgotten.TYPE:
            self.deliveries.forget(entry.subject)
            self.faulty.discard(entry.subject)
        elif (fields := self.hashes.jobs.get(entry.subject)) is not None:
            self.deliveries.event(entry, fields)

    def _other(self, entry: Entry) -> None:
        if entry.type in JOB_TYPES and entry.type != JobEventRejected.TYPE:
            self._blame(entry.position, "sequence_gap", f"{entry.subject}: {entry.type} has no number")
        try:
            event = entry.event()
        except Corrupt as error:
            self._blame(entry.position, "unreadable", error.reason)
            return
        if isinstance(event, LogCheckpointed):
            self._chain.checkpoint(entry.position, event, self._public)
        elif isinstance(event, WebhookAttempted | WebhookExhausted) and event.job_id in self.hashes.jobs:
            self.deliveries.told(entry.position, event)  # of a forgotten job, or an operation, nothing is kept

    def _blame(self, position: str, kind: str, what: str) -> None:
        """Note a fault of the log that no single job is known to bear."""
        self._findings.add(position, kind, what)
        self.is_sound = False
