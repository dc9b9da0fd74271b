"""How a job is forgotten. Pure."""

from collections.abc import Mapping, Sequence

from contracts import events as ev
from contracts.job import TERMINAL, JobStatus
from contracts.store.archive import Standing
from contracts.store.write import JobGuard, Write


def forgettable(job_ids: Sequence[str], states: Mapping[str, Standing], known_for_s: int) -> list[Write]:
    """Return the writes that forget these jobs; one that runs again is left alone.

    A job whose hash is gone, by a foreign hand, is only taken off the list.
    """
    found: list[Write] = []
    for job_id in job_ids:
        standing = states.get(job_id)
        if standing is None:
            found.append(Write(job_id, guard=JobGuard()))
        elif JobStatus(standing.status) in TERMINAL:
            guard = JobGuard(states=(standing.status,), run=standing.run)
            forget = (standing.tenant_id, known_for_s)
            found.append(Write(job_id, (ev.JobForgotten(),), guard=guard, forget=forget))
    return found
