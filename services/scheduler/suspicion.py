"""Refused decisions: explained by what the log says meanwhile, or a contradiction between fold and store. Pure.

A refusal is ordinary while somebody else was faster: the log then holds an entry about that job or worker which the
leader had not folded. Refused twice with nothing in the log to explain it, the job (or the slot, where the worker's
guard refused) is set aside by an entry, because trying for ever would hold up everything else.
"""

from dataclasses import dataclass

from contracts.positions import entry_key
from contracts.store.replies import Verdict
from services.scheduler import decisions
from services.scheduler.decisions import Decision
from services.scheduler.fold.state import PoolState

MOST_KEPT = 10_000
Key = tuple[str, str, int | None]


@dataclass(frozen=True, slots=True)
class _Refused:
    decision: Decision
    verdict: Verdict
    basis: str


class Suspicions:
    """What was refused lately, and how often without a reason."""

    def __init__(self) -> None:
        self._refused: list[_Refused] = []
        self._unexplained: dict[Key, int] = {}

    def note(self, decision: Decision, verdict: Verdict, basis: str) -> None:
        """Note the verdict on a decision that was made at `basis`."""
        if verdict.applied:
            self._unexplained.pop(_key(decision, verdict), None)
        # A heartbeat that moved on is a worker that lives, and an archivist that came forgets from now on: nothing of
        # either is in the log, and nothing is wrong.
        elif not _waits_for_heartbeat(decision, verdict) and verdict.refused_by != "archive":
            self._refused.append(_Refused(decision, verdict, basis))

    def judge(self, state: PoolState) -> list[Decision]:
        """Return the mismatches, now that the fold has reached the end of the log as it was at the refusals."""
        refused, self._refused = self._refused, []
        found = [mismatch for one in refused if (mismatch := self._judge(one, state)) is not None]
        if len(self._unexplained) > MOST_KEPT:
            self._unexplained.clear()
        return found

    def _judge(self, refused: _Refused, state: PoolState) -> Decision | None:
        decision, verdict = refused.decision, refused.verdict
        key = _key(decision, verdict)
        if _is_explained(decision, state, refused.basis):
            self._unexplained.pop(key, None)
            return None
        self._unexplained[key] = self._unexplained.get(key, 0) + 1
        if self._unexplained[key] < 2:
            return None
        del self._unexplained[key]
        by_worker = verdict.refused_by == "worker"
        return decisions.mismatch(
            decision.job_id,
            f"{decision.write.events[0].TYPE} {verdict.word}",
            decision.worker_id if by_worker else None,
            decision.slot if by_worker else None,
        )


def _key(decision: Decision, verdict: Verdict) -> Key:
    if verdict.refused_by == "worker":
        return ("worker", decision.worker_id, decision.slot)
    return ("job", decision.job_id, None)


def _waits_for_heartbeat(decision: Decision, verdict: Verdict) -> bool:
    guard = decision.write.worker_guard
    return verdict.refused_by == "worker" and guard is not None and guard.heartbeat is not None


def _is_explained(decision: Decision, state: PoolState, basis: str) -> bool:
    """Whether the log says something about the job or the worker that the decision did not know."""
    job, worker = state.jobs.get(decision.job_id), state.workers.get(decision.worker_id)
    if job is None or (decision.worker_id and worker is None):
        return True
    return any(entry_key(about.last) > entry_key(basis) for about in (job, worker) if about is not None)
