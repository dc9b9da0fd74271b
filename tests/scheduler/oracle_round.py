"""What the oracle chooses: slot by slot, everything scanned again for each choice."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.scheduler.fold.accounts import TIERS
from services.scheduler.fold.estimates import Estimates
from services.scheduler.fold.knobs import Knobs
from services.scheduler.fold.lines import JobClass, Waiting
from services.scheduler.fold.placement import Place, Room, opens_at_ms
from tests.scheduler.oracle_books import SCALE, Books, fair_of

Picked = tuple[str, str, int, str, str, str, int | None, int]  # job, worker, slot, anchor, why, phase, batch, its size


@dataclass
class _Turn:
    phase: int
    anchor: str
    job: Waiting
    due: bool
    tenants: dict[str, list[Waiting]]


class Round:
    """One question: choices are made on a copy of the books, one after another."""

    def __init__(self, books: Books, found: Sequence[Place], knobs: Knobs, estimates: Estimates, now_ms: int) -> None:
        self.books, self.knobs, self.estimates, self.now_ms = books, knobs, estimates, now_ms
        self.room, self.count = Room(found), max(1, len(found))
        self.taken: set[str] = set()
        self.given: list[Waiting] = []
        self.last: tuple[_Turn, Waiting, Place, int] | None = None  # and how far what shares its pass may lead
        self.draining: dict[tuple[str, str], int] = {}

    def choose(self, held: Sequence[tuple[str, JobClass, int]], limit: int) -> list[Picked]:
        over_ms = {job_id: until + self.estimates.load_ms(job_class.model) for job_id, job_class, until in held}
        overdue = [one for one in held if over_ms[one[0]] <= self.now_ms]
        picked = self._late(overdue)
        late = []
        for place in self.room.free():
            if opens_at_ms(place.slot, self.knobs.deck_lead_ms) > self.now_ms:
                late.append(place)
                continue
            while self.room.is_free(place) and len(picked) < limit and (one := self._pick(place)) is not None:
                picked += self._with_companions(one, len(picked), limit)
        picked += self._late([one for one in held if one not in overdue])[: limit - len(picked)]
        given = []
        for place in late:
            turn = self._turn(place) if self.room.is_free(place) else None
            if turn is not None and turn.job.band <= 1 and self._holds(place, turn.job):
                given.append(turn.job)
                picked.append(self._give(turn, turn.job, place, "deck"))
        for job in given:
            for place in [place for place in late if self.room.is_free(place) and self._holds(place, job)][:7]:
                self.room.take(place, job.job_class)
                picked.append((job.job_id, place.worker.id, place.slot.index, "", "decks", "flat", None, 1))
        return picked[:limit]

    def _late(self, held: Sequence[tuple[str, JobClass, int]]) -> list[Picked]:
        picked: list[Picked] = []
        for job_id, job_class, _ in held:
            idle = [place for place in self.room.free() if place.is_idle and self.room.fits(place, job_class)]
            idle.sort(key=lambda place: not _is_warm(place, job_class))  # stable: warm ones first
            if idle:
                self.room.take(idle[0], job_class)
                picked.append((job_id, idle[0].worker.id, idle[0].slot.index, "", "late_hold", "flat", None, 1))
        return picked

    def _turn(self, place: Place, *, flat: bool = False) -> _Turn | None:
        books = self.books
        tenants = {}
        for name in books.tenants:
            jobs = [job for job in books.jobs_of(name, self.now_ms, self.taken) if place.could_hold(job.job_class)]
            if jobs and books.may_run(name):
                tenants[name] = jobs
        if not tenants:
            return None
        tiers = {books.rule(name)[1] for name in tenants}
        owed = [
            (books.rho[tier], tier)
            for tier in tiers
            if not flat and self.knobs.floors_milli[tier] and books.rho[tier] <= books.total
        ]
        phase = min(owed)[1] if owed else -1
        if owed:
            tenants = {name: jobs for name, jobs in tenants.items() if books.rule(name)[1] == phase}
        anchor = min(tenants, key=lambda name: (books.tenants[name].v, name))
        job, due = books.fair_job(anchor, tenants[anchor], self.knobs.bypass_ms)
        return _Turn(phase, anchor, job, due, tenants)

    def _pick(self, place: Place) -> Picked | None:
        while (turn := self._turn(place)) is not None:
            job, lead_v = turn.job, self.books.tenants[turn.anchor].v + self.knobs.lead
            if place.device in self.draining:
                other = self._best(turn, place, self.draining[place.device], None)
                return None if other is None else self._give(turn, other, place, "fit", self.draining[place.device])
            if place.slot.running is not None and job.job_class.resources:
                self.taken.add(job.job_id)
                return None
            if not turn.due and (departed := self._depart(turn, place, lead_v)) is not None:
                return departed
            if (placed := self._placed(turn, place)) is not None:
                return placed
            other = self._best(turn, place, lead_v, None)
            if other is not None:
                return self._give(turn, other, place, "fit", lead_v)
            device = self.room.drained_for(job.job_class)
            self.taken.add(job.job_id)
            if device is not None:
                self.draining.setdefault(device, lead_v)
            if device == place.device:
                return None
        return None

    def _depart(self, turn: _Turn, place: Place, lead_v: int) -> Picked | None:
        pressed = self._pressed(turn, place, lead_v)
        if pressed is not None:
            return self._give(turn, pressed, place, "deadline")
        load_ms = self.estimates.load_ms(turn.job.job_class.model)
        warm_v = min(lead_v, self.books.tenants[turn.anchor].v + 4 * load_ms * SCALE)
        warm = self._best(turn, place, warm_v, place.slot.resident)
        if warm is None:
            return None
        if warm is turn.job:
            return self._give(turn, warm, place, "idle" if place.is_idle else "deck")
        return self._give(turn, warm, place, "warm", warm_v)

    def _placed(self, turn: _Turn, place: Place) -> Picked | None:
        job, word = turn.job, "idle" if place.is_idle else "deck"
        model, here = job.job_class.model, self.room.fits(place, job.job_class)
        if here and _is_warm(place, job.job_class):
            return self._give(turn, job, place, word)
        fitting = [other for other in self.room.free() if self.room.fits(other, job.job_class)]
        warm = [other for other in fitting if _is_warm(other, job.job_class)]
        for other in warm:
            if other.is_idle:
                return self._give(turn, job, other, "idle")
        load_ms = self.estimates.load_ms(model)
        if self.knobs.hold and not job.held and load_ms and warm and not job.job_class.resources:
            busy = warm[0]
            ready_ms = max(self.now_ms, 0 if place.is_idle else place.slot.free_at_ms)
            if not busy.slot.guessed and busy.slot.free_at_ms < ready_ms + load_ms:
                return self._give(turn, job, busy, "hold")
        if (
            here
            and turn.phase >= 0
            and self.knobs.hold
            and 2 * (self.now_ms - job.since_ms) < 3 * load_ms - load_ms % 2
        ):
            flat = self._turn(place, flat=True)
            assert flat is not None
            if not flat.due:
                departed = self._depart(flat, place, self.books.tenants[flat.anchor].v + self.knobs.lead)
                if departed is not None:
                    return departed
        if here:
            return self._give(turn, job, place, word)
        for other in fitting:
            if other.is_idle:
                return self._give(turn, job, other, "idle")
        return None

    def _best(self, turn: _Turn, place: Place, most_v: int, models: Sequence[str] | None) -> Waiting | None:
        best: list[tuple[int, str, int, Waiting]] = []
        for name, jobs in turn.tenants.items():
            tenant = self.books.tenants[name]
            if tenant.v > most_v:
                continue
            first, due = self.books.fair_job(name, jobs, self.knobs.bypass_ms)
            fitting = [
                job
                for job in jobs
                if job.band == first.band
                if models is None or (job.job_class.model in models and not job.job_class.alone)
                if self._holds(place, job) and (not due or job is first)
            ]
            if fitting:
                job = fair_of(tenant, fitting)
                best.append((tenant.v, name, tenant.users[job.user].v, job))
        return min(best)[3] if best else None

    def _pressed(self, turn: _Turn, place: Place, lead_v: int) -> Waiting | None:
        margin_ms = self.knobs.deck_lead_ms + self._cost_ms(turn.job, place) // self.count
        for tier in range(len(TIERS)):
            late = sorted(
                (job.expires_at_ms, job)
                for name, jobs in turn.tenants.items()
                for job in jobs
                if self.books.rule(name)[1] == tier and job.expires_at_ms <= self.now_ms + margin_ms
            )
            for _, job in late:
                tenant = self.books.tenants[job.tenant_id]
                first, due = self.books.fair_job(job.tenant_id, turn.tenants[job.tenant_id], self.knobs.bypass_ms)
                allowed = job is first or (job.band == first.band and not due)
                if tenant.v <= lead_v and allowed and self._holds(place, job):
                    return job
        return None

    def _holds(self, place: Place, job: Waiting) -> bool:
        return (place.is_idle or not job.job_class.resources) and self.room.fits(place, job.job_class)

    def _cost_ms(self, job: Waiting, place: Place) -> int:
        model = job.job_class.model
        load_ms = 0 if _is_warm(place, job.job_class) else self.estimates.load_ms(model)
        return self.estimates.run_ms(model, job.job_class.bucket) + load_ms

    def _give(self, turn: _Turn, job: Waiting, place: Place, why: str, most_v: int | None = None) -> Picked:
        lead_v = self.books.tenants[turn.anchor].v + self.knobs.lead
        self.last = (turn, job, place, lead_v if most_v is None else most_v)
        self.room.take(place, job.job_class)
        return self._charge(turn, job, place, why, self._cost_ms(job, place))

    def _charge(self, turn: _Turn, job: Waiting, place: Place, why: str, est_ms: int) -> Picked:
        name = job.tenant_id
        tenant = self.books.tenants[name]
        self.books.pass_over(tenant, turn.tenants[name], job, est_ms)
        amounts = self.books.amounts(name, turn.phase, est_ms, self.knobs)
        self.books.add(name, job.user, turn.phase, *amounts)
        tenant.in_flight += 1
        tenant.users[job.user].in_flight += 1
        for resource, units in job.job_class.resources:
            self.books.tokens[resource] = self.books.tokens.get(resource, 0) - units
        self.taken.add(job.job_id)
        self.given.append(job)
        phase = "flat" if turn.phase == -1 else f"reserved:{TIERS[turn.phase]}"
        return (job.job_id, place.worker.id, place.slot.index, turn.anchor, why, phase, None, 1)

    # -- who shares the pass --------------------------------------------------------------------------------------

    def _with_companions(self, one: Picked, number: int, limit: int) -> list[Picked]:
        assert self.last is not None
        turn, job, place, most_v = self.last
        shared, most = [one], min(limit - number, job.job_class.max_batch, self._share(job.job_class))
        while one[4] != "hold" and len(shared) < most:
            if not self.books.is_open(job.job_class) or not self.room.may_join(place, job.job_class, len(shared)):
                break
            now = self._again(turn, place)
            other = self._next_of(now, job.job_class, most_v)
            if other is None:
                break
            self.room.join(place, job.job_class, len(shared))
            run_ms = self.estimates.run_ms(job.job_class.model, job.job_class.bucket)
            shared.append(self._charge(now, other, place, "batch", run_ms))
        return shared if len(shared) == 1 else [(*each[:6], number, len(shared)) for each in shared]

    def _share(self, job_class: JobClass) -> int:
        waiting = sum(job.job_class == job_class for job in self.books.jobs.values())
        waiting -= sum(job.job_class == job_class for job in self.given[:-1])
        idle = [place for place in self.room.free() if place.is_idle and self.room.fits(place, job_class)]
        return (waiting + len(idle)) // (len(idle) + 1)

    def _again(self, turn: _Turn, place: Place) -> _Turn:
        """Look at the queues once more, in the same phase and for the same anchor."""
        tiers = [turn.phase] if turn.phase >= 0 else range(len(TIERS))
        tenants = {
            name: [job for job in self.books.jobs_of(name, self.now_ms, self.taken) if place.could_hold(job.job_class)]
            for name in self.books.tenants
            if self.books.rule(name)[1] in tiers and self.books.may_run(name)
        }
        return _Turn(turn.phase, turn.anchor, turn.job, turn.due, tenants)

    def _next_of(self, turn: _Turn, job_class: JobClass, most_v: int) -> Waiting | None:
        found: list[tuple[int, str, int, Waiting]] = []
        for name, jobs in turn.tenants.items():
            tenant = self.books.tenants[name]
            if jobs and tenant.v <= most_v:
                first, due = self.books.fair_job(name, jobs, self.knobs.bypass_ms)
                of_class = [job for job in jobs if job.job_class == job_class and job.band == first.band]
                of_class = [job for job in of_class if not due or job is first]
                if of_class:
                    job = fair_of(tenant, of_class)
                    found.append((tenant.v, name, tenant.users[job.user].v, job))
        return min(found)[3] if found else None


def _is_warm(place: Place, job_class: JobClass) -> bool:
    return job_class.model in place.slot.resident and not job_class.alone
