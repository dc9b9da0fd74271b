"""What comes of an audit, and how it is told: the same document by command line, API and event. Pure."""

from dataclasses import dataclass
from typing import Any

from contracts.audit.findings import Findings, Projection
from contracts.audit.scope import Scope
from contracts.events import AuditVerified

CHAIN_KINDS = frozenset(
    {"chain_broken", "wrong_segment", "altered_entry", "unreadable_segment", "chain_end", "forged_checkpoint",
     "checkpoint_differs", "log_differs"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of it; `position` is the newest that was looked at, `digest` the chain's after what is archived."""

    pool: str
    position: str
    events: int
    archived: int
    findings: Findings
    projections: tuple[Projection, ...]
    scope: Scope = Scope()
    digest: str = ""

    @property
    def chain_ok(self) -> bool:
        """Whether archive, chain and checkpoints are what they were, as far as they were looked at."""
        return not CHAIN_KINDS & self.findings.counts.keys()

    @property
    def ok(self) -> bool:
        """Whether nothing at all is wrong."""
        return not self.findings.counts and not any(each.differing for each in self.projections)

    def as_json(self) -> dict[str, Any]:
        """Return it as the API tells it."""
        found = self.findings
        return {
            "pool": self.pool, "position": self.position, "ok": self.ok, "events": self.events,
            "archived": self.archived, "chainOk": None if self.scope.is_partial else self.chain_ok,
            "firstBadPosition": found.first or None,
            "findings": [{"position": each.position, "kind": each.kind, "what": each.what} for each in found.kept],
            "counts": dict(found.counts),
            "projections": [
                {"name": each.name, "rows": each.rows, "differing": each.differing, "unknown": each.unknown,
                 "sample": each.sample}
                for each in self.projections
            ],
        }  # fmt: skip

    def as_event(self, by: str) -> AuditVerified:
        """Return what the log says of it."""
        differing = {each.name: each.differing for each in self.projections if each.differing}
        return AuditVerified(
            position=self.position, events=self.events, archived=self.archived, hash=self.digest, ok=self.ok,
            findings=self.findings.counts.total(), differing=differing or None,
            first_bad_position=self.findings.first or None, by=by,
        )  # fmt: skip
