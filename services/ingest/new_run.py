"""What is written when a job that ended is to run again: by its owner, or by an operator out of the dead letters. Pure.

Promises: attempts count on, so that fences and the names of stored files stay unique; the run has the attempts that the
job was admitted with. Whether there is room for it is for the call that writes it to say (`limits`).
"""

from collections.abc import Sequence

from contracts import events as ev
from contracts.job import JobStatus
from contracts.store.jobs import History
from contracts.store.write import JobGuard, Write
from services.ingest.edge.problems import Problem

RETRYABLE = frozenset({JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.EXPIRED})


def new_run(
    history: History, by: str, hooked: frozenset[str], first: Sequence[ev.Event] = ()
) -> Write:  # fmt: skip
    """Return the write that begins it, after the events `first`. Raises Problem where it must not."""
    state = history.state
    if state.status not in RETRYABLE:
        raise Problem("not_retryable", f"The job is {state.status}")
    if not history.body:
        raise Problem("data_erased", "What the job was asked to do is gone")
    created = history.entries[0].event() if history.complete else None
    allowed = created.max_attempts if isinstance(created, ev.JobCreated) else 1
    event = ev.JobRetried(
        by=by, from_status=str(state.status), run=state.run + 1, max_attempts=state.attempt + allowed
    )  # fmt: skip
    return Write(
        state.id,
        (*first, event),
        fence=state.fence,
        hooked=hooked,
        guard=JobGuard(sequence=state.sequence),
        opens_for=state.tenant_id,
    )
