"""What an audit is limited to: one job, one tenant, or a stretch of the log. Pure.

Promises: whose an entry is, is known from the log alone; an entry of another tenant is never decoded further than that.
"""

from dataclasses import dataclass, field

import orjson

from contracts.positions import entry_key
from contracts.store.records import Record

_DELIVERY, _JOB_PART = b"dlv_", slice(4, 32)


@dataclass(frozen=True, slots=True)
class Scope:
    """Limits of an audit; '' is none. `after` and `until` are positions: what lies outside is not looked at."""

    job_id: str = ""
    tenant_id: str = ""
    after: str = ""
    until: str = ""

    @property
    def is_partial(self) -> bool:
        """Whether only some jobs are looked at: then chain and archive are not."""
        return bool(self.job_id or self.tenant_id)

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return self == Scope()

    def holds(self, position: str) -> bool:
        """Whether a position lies in the stretch."""
        key = entry_key(position)
        return (not self.after or key > entry_key(self.after)) and (not self.until or key <= entry_key(self.until))


@dataclass(slots=True)
class Sieve:
    """Lets through the entries of a scope; a tenant's jobs are known from their first events."""

    scope: Scope
    jobs: set[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = {self.scope.job_id.encode()} if self.scope.job_id else set()

    def takes(self, record: Record) -> bool:
        """Whether the entry is of a job in scope, or of a delivery about one."""
        if not self.scope.is_partial:
            return True
        named = dict(zip(record.fields[::2], record.fields[1::2], strict=False))
        subject = named.get(b"j", b"")
        if subject.startswith(_DELIVERY):
            subject = b"job_" + subject[_JOB_PART]
        if self.scope.tenant_id and named.get(b"t", b"").partition(b"/")[0] == b"job.created":
            self._learn(subject, named.get(b"d", b""))
        return subject in self.jobs

    def _learn(self, subject: bytes, data: bytes) -> None:
        try:
            tenant_id = orjson.loads(data)["tenantId"]
        except (ValueError, KeyError, TypeError):
            return
        if tenant_id != self.scope.tenant_id:
            self.jobs.discard(subject)
        elif not self.scope.job_id:
            self.jobs.add(subject)
