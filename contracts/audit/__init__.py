"""Is the live state the truth: everything that follows from the log is made again from it, and compared.

`scope` limits it; `chain_audit` walks sealed segments, `log_audit` folds entries and notices what cannot be,
`job_hashes` makes the hashes of jobs and the counters again, `deliveries` what must be sent; `findings` and `verdict`
are what comes of it; all of them are pure. `comparing` looks at the live state, `verify` reads archive and log and
brings them together, with what others bring along (`beside`). `mending` writes what differs anew, when `repair` finds
the log itself in order.
"""

from contracts.audit.beside import Beside
from contracts.audit.findings import Finding, Findings, Projection
from contracts.audit.mending import Mender
from contracts.audit.repair import Repaired, record, repair
from contracts.audit.scope import Scope
from contracts.audit.verdict import Verdict
from contracts.audit.verify import Checkpoint, Verifier, checkpoints, verify

__all__ = [
    "Beside", "Checkpoint", "Finding", "Findings", "Mender", "Projection", "Repaired", "Scope", "Verdict", "Verifier",
    "checkpoints", "record", "repair", "verify",
]  # fmt: skip
