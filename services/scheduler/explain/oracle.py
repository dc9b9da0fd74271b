"""Answers to the questions of other processes, from the fold as it is. Pure but for its memory.

What it costs does not grow with the number of jobs: long lines and very many tenants are sampled (see `line`), and of a
large pool a moment is kept for a quarter of a second.
"""

from contracts import questions as q
from services.scheduler.explain.backlog import Idleness, Oldest, backlog
from services.scheduler.explain.facts import Facts, closed_until_ms
from services.scheduler.explain.memory import Cause, Memory
from services.scheduler.explain.moment import Moment
from services.scheduler.explain.reasons import reasons
from services.scheduler.explain.standing import Standing, standing
from services.scheduler.explain.words import duration_text
from services.scheduler.fold.state import PoolState

_STOPPED = frozenset({"pool_paused", "tenant_paused", "model_paused", "no_worker_with_model", "set_aside"})


class Oracle:
    """One for each term of leadership."""

    def __init__(self, state: PoolState) -> None:
        self._state, self._facts = state, Facts(state)
        self._memory = Memory()
        self._moment: Moment | None = None
        self._idleness = Idleness()
        self._oldest, self._oldest_in_line = Oldest(on_decks=True), Oldest(on_decks=False)

    def answer(self, question: q.Question, now_ms: int) -> q.Answer | None:
        """Answer one question. A job that is unknown, or somebody else's, is answered as one that does not wait."""
        moment = self.moment(now_ms)
        match question.kind:
            case "place":
                return self._explain(moment, question).place
            case "why":
                return self._explain(moment, question)
            case "backlog":
                oldest = self._oldest.job_id(moment)
                return backlog(moment, self._facts, question.target_ms, self._idleness.ms, oldest)
            case "use":
                return self._use(question.subject, now_ms)

    def moment(self, now_ms: int) -> Moment:
        """Return the pool as it is now, or as it was just now."""
        if self._moment is None or self._moment.is_over(now_ms):
            self._moment = Moment(self._state, now_ms)
        return self._moment

    def watch(self, now_ms: int) -> None:
        """Note what slots stand idle although jobs wait, and why; call it as often as you like."""
        if not self._idleness.is_due(now_ms):
            return
        moment = self.moment(now_ms)
        idle = sum(seat.place.is_idle and seat.place.slot.deck is None for seat in moment.seats.all)
        oldest = self._oldest_in_line.job_id(moment) if idle else None
        found = None if oldest is None else standing(moment, self._state.jobs[oldest])
        why = [] if found is None else reasons(moment, self._facts, found)
        self._idleness.note(now_ms, idle, why[0].code if why else None)

    def _explain(self, moment: Moment, question: q.Question) -> q.Explanation:
        job = self._state.jobs.get(question.subject)
        if job is None or job.tenant_id != question.tenant_id:
            return q.Explanation()
        found = standing(moment, job)
        if found is None:
            return q.Explanation()
        why = reasons(moment, self._facts, found)
        eta_ms = self._memory.bounded(job.id, self._eta_ms(moment, found, why), self._cause(found))
        place = q.JobPlace(found.ahead, eta_ms, None if eta_ms is None else self._basis(found))
        return q.Explanation(place, tuple(why), moment.seats.spots(job.model, found.chosen))

    def _eta_ms(self, moment: Moment, found: Standing, why: list[q.Reason]) -> int | None:
        """Return when it should start: not before any of its clocks; None while something only a person ends holds."""
        job, now_ms = found.job, moment.now_ms
        if not found.chosen or found.rule.cap == 0 or any(reason.code in _STOPPED for reason in why):
            return None
        clocks_ms = [job.not_before_ms or 0]
        budget = self._facts.budget(job.tenant_id, now_ms)
        if budget.is_exhausted:
            clocks_ms.append(budget.resets_at_ms)
        clocks_ms += [self._token_ms(found, name, units, now_ms) for name, units in found.job_class.resources]
        return max(found.start_in_ms, max(clocks_ms) - now_ms)

    def _token_ms(self, found: Standing, name: str, units: int, now_ms: int) -> int:
        """Return when an external limit should have tokens for the job and for those that draw on it before."""
        limit = self._facts.resource(name)
        if limit is None:
            return 0
        waiting = self._state.limits.waiting.items()
        drawing = sum(n for job_class, n in waiting if any(name == other for other, _ in job_class.resources))
        missing = (min(found.ahead, max(0, drawing - 1)) + 1) * units - limit.tokens
        windows = max(0, -(-missing // max(1, limit.rate)))
        return max(now_ms, closed_until_ms(limit)) + windows * limit.window_ms

    def _cause(self, found: Standing) -> Cause:
        job = found.job
        return Cause(len(found.seats), job.band, job.fence, self._facts.configured, self._state.arrived_ms)

    def _basis(self, found: Standing) -> str:
        estimates, job = self._state.estimates, found.job
        own = f"average run time of {job.model}"
        each_ms = estimates.run_ms(job.model, found.job_class.bucket)
        learnt = (
            own if estimates.knows(job.model) else f"{duration_text(each_ms)} a job, as nothing of {job.model} ran yet"
        )
        slots = "1 slot" if len(found.seats) == 1 else f"{len(found.seats)} slots"
        return f"{learnt}, {slots}"

    def _use(self, tenant_id: str, now_ms: int) -> q.TenantUse:
        budget = self._facts.budget(tenant_id, now_ms)
        return q.TenantUse(self._facts.in_flight(tenant_id), budget.used_ms, budget.resets_at_ms)
