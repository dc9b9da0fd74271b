"""How good a place and an ETA are, on random worlds: against what is then really served, and against what was told."""

import random

import pytest

from contracts import events as ev
from contracts import questions as q
from services.scheduler.explain.fluid import time_until
from services.scheduler.explain.oracle import Oracle
from services.scheduler.leases import LostWorker
from tests.scheduler.world import World

TENANTS = ("t_a", "t_b", "t_c", "t_d")
RUN_MS = 10_000  # what a job is taken to need before anything was measured, and needs


def place(oracle: Oracle, world: World, job_id: str) -> q.JobPlace:
    answer = oracle.answer(q.Question("place", job_id, world.job(job_id).tenant_id), world.now_ms)
    assert isinstance(answer, q.JobPlace)
    return answer


def start_all(world: World) -> list[str]:
    """Start what lies on the decks of idle slots, as workers do at once."""
    started = []
    for worker in world.state.workers.values():
        for slot in worker.slots.values():
            if slot.running is None and slot.deck is not None:
                started.append(slot.deck)
                world.start(slot.deck)
    return started


def next_end(world: World) -> tuple[int, str] | None:
    """Return when the next running job has run for as long as was estimated."""
    jobs = [job for job in world.state.jobs.values() if job.on_device]
    return min(((job.started_ms + RUN_MS, job.id) for job in jobs), default=None)


def serve(world: World, until: str) -> tuple[list[str], int]:
    """Run the pool with exact estimates until this job starts; return what started before it, and when it did."""
    served: list[str] = []
    while True:
        world.turns()
        started = start_all(world)
        if until in started:
            return [*served, *started[: started.index(until)]], world.now_ms
        served += started
        if started:
            continue
        end = next_end(world)
        assert end is not None, "the pool stands still"
        world.now_ms = max(world.now_ms, end[0])
        world.complete(end[1], RUN_MS)


@pytest.mark.parametrize("seed", range(12))
def test_what_goes_before_a_job_and_when_it_starts_is_as_told_give_or_take_a_job_for_each_tenant(seed: int) -> None:
    chance = random.Random(seed)
    world = World()
    slots = chance.randint(1, 4)
    world.worker(slots=slots)
    tenants = TENANTS[: chance.randint(1, 4)]
    words = ("urgent", "high", "normal", "low")
    for _ in range(chance.randint(5, 40)):
        if chance.random() < 0.3:
            world.turns()
            start_all(world)
        world.submit(chance.choice(tenants), priority=chance.choice(words), user_digest=chance.choice("xy"))
    waiting = [job.id for job in world.state.jobs.values() if job.status == "queued"]
    job_id = chance.choice(waiting)
    told, asked_ms = place(Oracle(world.state), world, job_id), world.now_ms

    before, started_ms = serve(world, job_id)

    assert told.ahead is not None
    assert told.eta_ms is not None
    off = len(tenants) + 1  # one user more, or one tenant's job that is decided by a tie
    assert abs(told.ahead - len(before)) <= off
    assert abs(told.eta_ms - (started_ms - asked_ms)) <= (off + slots) * RUN_MS / slots


CALM = ("turn", "start", "complete", "complete", "time", "time")
CAUSES = ("submit", "drain", "lower", "fail")


@pytest.mark.parametrize("seed", range(25))
def test_an_eta_never_grows_by_itself_and_by_no_more_than_what_arrived(seed: int) -> None:
    """Jobs that run longer or shorter than estimated, time that passes, choices: none of it makes an ETA grow."""
    chance = random.Random(1_000 + seed)
    world, oracle = World(), None
    for number in range(chance.randint(1, 3)):
        world.worker(f"w{number}", slots=chance.randint(1, 2))
    for _ in range(chance.randint(4, 25)):
        world.submit(chance.choice(TENANTS), priority=chance.choice(("high", "normal")))
    oracle = Oracle(world.state)
    told: dict[tuple[str, int], int] = {}  # by job and fence: after a start that came to nothing it waits anew
    for _ in range(60):
        step = chance.choice((*CALM, *CALM, *CAUSES))
        arrived_ms, caused = world.state.arrived_ms, _step(world, step, chance)
        slots = sum(len(worker.slots) for worker in world.state.workers.values() if not worker.draining)
        for job in [job for job in world.state.jobs.values() if job.status == "queued"]:
            eta_ms = place(oracle, world, job.id).eta_ms
            before_ms = told.get((job.id, job.fence))
            if eta_ms is not None and before_ms is not None and eta_ms > before_ms and job.id not in caused:
                came_ms = world.state.arrived_ms - arrived_ms
                assert step == "drain" or eta_ms - before_ms <= came_ms / max(1, slots) + 1, (step, job.id)
            if eta_ms is None:
                told.pop((job.id, job.fence), None)
            else:
                told[job.id, job.fence] = eta_ms


def _step(world: World, step: str, chance: random.Random) -> set[str]:
    """Do something; returns the jobs whose own wait begins anew by it."""
    jobs = list(world.state.jobs.values())
    running = [job for job in jobs if job.on_device]
    waiting = [job for job in jobs if job.status == "queued" and not job.offers]
    match step:
        case "turn":
            world.turns()
        case "start":
            start_all(world)
        case "complete" if running:
            world.complete(chance.choice(running).id, chance.choice((100, 5_000, 60_000)))
        case "time":
            world.now_ms += chance.choice((10, 1_000, 30_000))
        case "submit":
            world.submit(chance.choice(TENANTS), priority=chance.choice(("urgent", "normal")))
        case "drain" if len(world.state.workers) > 1:
            worker = chance.choice(sorted(world.state.workers))
            world.write(worker, ev.WorkerDraining(worker_id=worker))
        case "lower" if waiting:
            job = chance.choice(waiting)
            world.write(job.id, ev.JobPriorityChanged(priority="low", previous="normal"))
            return {job.id}
        case "fail" if running:
            job = chance.choice(running)
            world.fail(job.id, delay_ms=2_000)
            return {job.id}
    return set()


@pytest.mark.parametrize("seed", range(20))
def test_work_runs_over_the_slots_as_they_become_free(seed: int) -> None:
    """The fluid is checked against a simulation in small steps."""
    chance = random.Random(seed)
    free_in_ms = [chance.randint(0, 100) for _ in range(chance.randint(1, 6))]
    work_ms = chance.randint(0, 400)

    at_ms, done_ms = 0, 0
    while done_ms < work_ms or at_ms < min(free_in_ms):
        done_ms += sum(free <= at_ms for free in free_in_ms)
        at_ms += 1

    assert abs(time_until(work_ms, free_in_ms) - at_ms) <= 1


def test_fewer_slots_a_lowered_priority_and_an_operator_make_an_eta_grow() -> None:
    world = World()
    for number in range(2):
        world.worker(f"w{number}")
    jobs = [world.submit() for _ in range(5)]
    oracle = Oracle(world.state)
    told = place(oracle, world, jobs[-1]).eta_ms
    assert told == 20_000

    world.write("w1", ev.WorkerDraining(worker_id="w1"))
    assert place(oracle, world, jobs[-1]).eta_ms == 40_000
    assert place(oracle, world, jobs[1]).eta_ms == 10_000
    world.write(jobs[1], ev.JobPriorityChanged(priority="low", previous="normal"))
    assert place(oracle, world, jobs[1]).eta_ms == 40_000


def test_nothing_is_forgotten_when_a_tenth_of_a_large_fleet_dies_and_the_oldest_age_falls_to_zero() -> None:
    """Field case 24: 80 workers, 5,000 low and 1,000 high jobs, 8 workers lost while they work."""
    world, chance = World(), random.Random(24)
    for number in range(80):
        world.worker(f"w{number:02}")
    jobs = [world.submit(priority=word, user_digest="") for word in ["low"] * 5_000 + ["high"] * 1_000]
    oracle, oldest = Oracle(world.state), []
    lost = set(chance.sample(sorted(world.state.workers), 8))
    while any(world.job(job_id).status != "completed" for job_id in jobs):
        world.turns()
        start_all(world)
        if lost and world.now_ms > 1_020_000:
            world.turn(lost_workers=[LostWorker(worker_id, 1, 3_000) for worker_id in sorted(lost)])
            lost = set()
        oldest.append(_backlog(oracle, world).oldest_ms)
        world.now_ms += RUN_MS
        for job in [job for job in world.state.jobs.values() if job.on_device and job.worker_id not in lost]:
            world.complete(job.id, RUN_MS)

    assert len(world.state.workers) == 72
    assert sum(entry.type == "job.lease_lost" for entry in world.entries) == 8
    assert max(oldest) >= 60 * RUN_MS
    assert _backlog(oracle, world) == q.Backlog(0, 0, 0, 0)


def _backlog(oracle: Oracle, world: World) -> q.Backlog:
    answer = oracle.answer(q.Question("backlog", target_ms=60_000), world.now_ms)
    assert isinstance(answer, q.Backlog)
    return answer
