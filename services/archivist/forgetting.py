"""Which jobs are forgotten now, which later, and how. Pure."""

from collections.abc import Callable, Mapping, Sequence

from contracts import events as ev
from contracts.job import TERMINAL, JobStatus
from contracts.store.archive import Standing
from contracts.store.write import JobGuard, Write

LOOK_AGAIN_MS = 3_600_000  # at a job that is kept for longer than the least: what holds may be another by then


def postponed(
    standings: Mapping[str, Standing], kept_ms: Callable[[str], int], least_ms: int, now_ms: int
) -> dict[str, int]:
    """Return the jobs that their tenant keeps for longer, with the ms under which they are to be listed from now on.

    Args:
        kept_ms: of a tenant.
        least_ms: of any tenant: what is listed under so long ago is looked at.
    """
    due = {job_id: each.done_ms + kept_ms(each.tenant_id) for job_id, each in standings.items()}
    return {job_id: min(due_ms, now_ms + LOOK_AGAIN_MS) - least_ms for job_id, due_ms in due.items() if due_ms > now_ms}


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
