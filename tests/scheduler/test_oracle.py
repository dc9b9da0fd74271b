"""The policy against brute force, over random histories of a pool with everything in it."""

import random
from collections.abc import Sequence

import pytest

from contracts import events as ev
from contracts.job import JobStatus
from services.scheduler.fold import facts
from services.scheduler.fold.choices import Choice
from services.scheduler.fold.eligible import class_of
from services.scheduler.fold.placement import places
from services.scheduler.fold.snapshot import dump, load
from tests.scheduler.oracle import Oracle
from tests.scheduler.oracle_round import Picked
from tests.scheduler.world import World

HISTORIES = 120
STEPS = 60
TIERS = ("enterprise", "standard", "free")
MODELS = ("a@1", "b@1", "c@1", "far@1")
WORDS = ("urgent", "high", "normal", "normal", "normal", "low")


class History:
    """One random life of a pool, the oracle told all that the policy is told."""

    def __init__(self, seed: int) -> None:
        self.world, self.dice, self.peaks = World(), random.Random(seed), random.Random(-seed - 1)
        policy = self.world.state.policy
        self.oracle = Oracle(lambda: policy.knobs, self.world.state.estimates)
        tell = policy.apply

        def both(event: facts.PolicyEvent) -> None:
            self.oracle.apply(event)
            tell(event)

        policy.apply = both  # type: ignore[method-assign]
        self.compared = self.shared = 0
        self._begin()

    def _begin(self) -> None:
        world, dice = self.world, self.dice
        rules = {
            f"t_{i}": ev.TenantRule(
                tier=dice.choice(TIERS), concurrency=dice.choice((None, None, 1, 3)),
                user_concurrency=dice.choice((None, None, 1, 2)),
            )
            for i in range(6)
        }  # fmt: skip
        knobs = ev.PolicyFacts(
            lead_s=dice.choice((0.0, 2.0, 60.0)), bypass_s=dice.choice((0.0, 8.0, 300.0)),
            deck_lead_s=dice.choice((0.0, 3.0, 1_000.0)), hold=dice.random() < 0.8,
            tier_floors=dice.choice(({"enterprise": 0.7, "free": 0.05}, {}, {"free": 0.3})),
        )  # fmt: skip
        weights = {name: dice.choice((1.0, 3.0, 8.0)) for name in rules}
        world.write("scheduler", ev.PolicyApplied(position="1-0", weights=weights, tenants=rules, policy=knobs))
        for number in range(dice.randint(1, 3)):
            far = dice.random() < 0.3
            world.worker(
                f"w{number}", slots=dice.randint(1, 3), slot_bytes=dice.choice((0, 10, 20)),
                models=("a", "b", "c", "far") if far else ("a", "b@1", "c"),
                device=f"gpu-{number}" if dice.random() < 0.5 else None,
            )  # fmt: skip
        for model in MODELS[: dice.randint(0, 4)]:
            world.state.estimates.learn_load(model, dice.choice((1_000, 30_000)))
            world.state.estimates.learn_run(model, "", dice.choice((2_000, 15_000)))
        world.state.policy.apply(facts.Tokens("api", 2))

    def step(self) -> None:
        """Let something happen."""
        world, dice = self.world, self.dice
        world.now_ms += dice.choice((1, 50, 900, 4_000))
        if self.peaks.random() < 0.03:
            bucket, needed_bytes = self.peaks.choice((None, "steps=4", "steps=8")), self.peaks.choice((5, 6, 12))
            seen = ev.ModelProfiled(model=self.peaks.choice(MODELS), bucket=bucket, bytes=needed_bytes, source="drift")
            world.write("w0", seen)
        jobs = list(world.state.jobs.values())
        running = [job.id for job in jobs if job.status is JobStatus.IN_PROGRESS and job.on_device]
        uploading = [job.id for job in jobs if job.status is JobStatus.IN_PROGRESS and not job.on_device]
        offered = [job.id for job in jobs if job.offers]
        match dice.choice(("submit",) * 8 + ("turn",) * 6 + ("start", "free", "end") * 3 + ("else",) * 3):
            case "submit":
                self._submit()
            case "turn":
                self._turn()
            case "start" if offered:
                self._start(dice.choice(offered))
            case "free" if running:
                job_id = dice.choice(running)
                event = ev.JobDeviceReleased(gpu_ms=dice.randint(1, 20_000))
                world.write(job_id, event, fence=world.job(job_id).fence)
            case "end" if uploading:
                job_id = dice.choice(uploading)
                world.write(job_id, ev.JobCompleted(attempt=1), fence=world.job(job_id).fence)
            case "else":
                self._else(running, offered)

    def _submit(self) -> None:
        """Admit a job, or a few that may share a pass."""
        dice, batch = self.dice, self.dice.random() < 0.3
        alike: dict[str, object] = {"max_batch": 3, "bucket": dice.choice(("steps=4", "steps=8"))} if batch else {}
        alike |= {"model": dice.choice(MODELS), "vram_bytes": dice.choice((0, 4, 9, 15))}
        alike |= {"resources": {"api": 1} if dice.random() < 0.1 else None, "alone": dice.random() < 0.1 or None}
        for _ in range(dice.randint(2, 6) if batch else 1):
            self.world.submit(
                f"t_{dice.randint(0, 5)}", priority=dice.choice(WORDS), user_digest=f"u{dice.randint(0, 3)}",
                start_by_ms=dice.choice((None,) * 8 + (3_000, 15_000)), **alike,
            )  # fmt: skip

    def _start(self, job_id: str) -> None:
        offer = self.world.offer_of(job_id)
        slot = self.world.state.seating.slot(offer.worker_id, offer.slot)
        if slot is not None and {self._batch(other) for other in slot.running_jobs} <= {self._batch(job_id)}:
            self.world.start(job_id)

    def _batch(self, job_id: str) -> str:
        """Return whom it shares a pass with."""
        newest = next(
            event
            for entry in reversed(self.world.entries)
            if entry.subject == job_id and isinstance(event := entry.event(), ev.JobAssigned)
        )
        return newest.batch or job_id

    def _else(self, running: Sequence[str], offered: Sequence[str]) -> None:
        world, dice, policy = self.world, self.dice, self.world.state.policy
        what = dice.randint(0, 7)
        if what == 0 and offered:
            world.decline(dice.choice(offered), reason=dice.choice(("overtaken", "slot_unusable")))
        elif what == 1 and running:
            world.fail(dice.choice(running), delay_ms=500, alone=dice.random() < 0.5)
        elif what == 2:
            policy.apply(facts.Parked(f"t_{dice.randint(0, 5)}", dice.random() < 0.4))
        elif what == 3:
            policy.apply(facts.ModelsPaused(frozenset(dice.sample(("a", "b@1"), dice.randint(0, 1)))))
        elif what == 4:
            policy.apply(facts.Tokens("api", dice.randint(0, 3)))
        elif what == 5 and running:
            policy.apply(facts.Recharged(dice.choice(running), dice.randint(20_000, 40_000)))
        elif what == 6:
            tier, cap = dice.choice(TIERS), dice.choice((None, 1, 2))
            policy.apply(facts.Ruled(f"t_{dice.randint(0, 5)}", dice.choice((500, 3_000)), tier, cap, cap))
        else:
            waiting = [job.id for job in world.state.jobs.values() if policy.waiting(job.id)]
            if waiting:
                world.cancel(dice.choice(waiting))

    def _turn(self) -> None:
        self.compare()
        if self.dice.random() < 0.8:
            self.world.turn()

    def compare(self) -> None:
        """Ask both; and a third that was kept and loaded."""
        state, now_ms = self.world.state, self.world.now_ms
        before = dump(state)
        _, chosen = state.choose(now_ms, 100)
        late = [
            (job.id, class_of(job), until_ms)
            for until_ms, job in sorted(
                ((at_ms, state.jobs[job_id]) for job_id, at_ms in state.seating.holding.items()),
                key=lambda pair: (pair[0], pair[1].id),
            )
            if until_ms <= now_ms and len(job.offers) == 1
        ]
        expected = self.oracle.choose(places(state.workers.values()), late, now_ms, 100)
        assert [_as_picked(choice) for choice in chosen] == expected
        assert dump(state) == before
        assert load(before).choose(now_ms, 100)[1] == chosen
        self.compared += len(expected)
        self.shared += sum(one[6] is not None for one in expected)


def _as_picked(choice: Choice) -> Picked:
    place = (choice.worker_id, choice.slot)
    return (choice.job_id, *place, choice.anchor, choice.why, choice.phase, choice.batch, choice.batch_size)


@pytest.mark.parametrize("seeds", [range(start, start + 20) for start in range(0, HISTORIES, 20)], ids=str)
def test_brute_force_agrees_on_every_choice_of_random_histories(seeds: range) -> None:
    compared = shared = 0
    for seed in seeds:
        history = History(seed)
        for _ in range(STEPS):
            history.step()
        history.compare()
        compared += history.compared
        shared += history.shared
    assert compared > 100
    assert shared > 20


@pytest.mark.parametrize("seed", [236, 322, 336])
def test_who_shares_a_pass_is_judged_by_the_place_where_it_runs(seed: int) -> None:
    """A small place asks, a large one is given the job: there its members overtake what only the large one can hold."""
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    history.compare()
