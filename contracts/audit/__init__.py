"""Is the live state the truth: everything that follows from the log is made again from it, and compared.

`chain_audit` walks sealed segments, `log_audit` folds entries and notices what cannot be, `job_hashes` makes the hashes
of jobs and the counters again, `findings` is what comes of it; all of them are pure. `verify` reads archive, log and
live state and brings them together.
"""

from contracts.audit.findings import Finding, Findings, Projection
from contracts.audit.verify import Checkpoint, Verdict, checkpoints, verify

__all__ = ["Checkpoint", "Finding", "Findings", "Projection", "Verdict", "checkpoints", "verify"]
