"""Who comes first: the urgent job, and the tenant that waits behind somebody's backlog."""

from pathlib import Path

import pytest

from contracts.positions import entry_ms
from tests.harness import Fragile, Stack, eventually
from tests.system.conftest import Starter

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_urgent_job_overtakes_the_one_on_deck(fragile: Fragile) -> None:
    """The offer is taken back before it is started; the job that lost it keeps its attempts and runs next."""
    running = await fragile.submit("slow", {"steps": 30, "step_s": 0.05})
    await fragile.wait_for(running, "job.started")
    on_deck = await fragile.submit("noop")
    await fragile.wait_for(on_deck, "job.assigned")

    urgent = await fragile.submit("noop", priority="urgent")
    await fragile.wait_for_ends()

    order = [entry.subject for entry in fragile.log.entries if entry.type == "job.started"]
    assert order == [running, urgent, on_deck]
    assert len(fragile.log.of(on_deck, "job.unassigned")) == 1
    assert fragile.log.of(on_deck, "job.started")[0].raw_data()["attempt"] == 1
    await fragile.audit()


async def test_jobs_of_one_tenant_start_in_the_order_of_their_submission_and_a_retried_one_is_next(
    fragile: Fragile, tmp_path: Path
) -> None:
    """Field case 20 with whole processes: fifty numbered jobs, one slot, and one that comes back after its delay."""
    retried = await fragile.submit("fails_once", {"marker": str(tmp_path / "marker")})
    await fragile.wait_for(retried, "job.attempt_failed")
    (tmp_path / "there").touch()  # the model of the retried one: a warm one might go first
    jobs = [await fragile.submit("fails_once", {"marker": str(tmp_path / "there")}) for _ in range(50)]

    await fragile.wait_for_ends()

    starts = [entry for entry in fragile.log.entries if entry.type == "job.started"]
    assert [entry.subject for entry in starts if entry.subject != retried] == jobs
    failed, again = fragile.log.of(retried, "job.attempt_failed")[0], fragile.log.of(retried, "job.started")[1]
    due_ms = int(str(failed.raw_data()["nextAttemptAtMs"]))
    between = [entry for entry in starts if due_ms <= entry_ms(entry.position) < entry_ms(again.position)]
    assert entry_ms(again.position) >= due_ms
    assert starts[-1].subject != retried
    assert len(between) <= 2  # the one that lay on the deck, and one offered as the timer fell due
    await fragile.audit()


async def test_a_tenant_with_one_job_waits_for_no_backlog_of_another(stack: Stack) -> None:
    """Promise 4 with whole processes: after a flood of 40 jobs the newcomer is among the next few."""
    newcomers_key = await stack.make_tenant()
    for _ in range(40):
        await stack.submit("paced", {"steps": 1, "step_s": 0.1})  # its estimate is of these jobs alone
    await stack.log.wait_until(lambda: sum(map(stack.log.has_ended, stack.jobs)) >= 8, "the flood is being worked on")
    # no guess of what its jobs take is outstanding any more, and the newcomer's model is loaded: for another one it
    # might have to let a few warm jobs go first
    newcomer = await stack.submit("paced", {"steps": 1, "step_s": 0.1}, key=newcomers_key)

    await stack.wait_for(newcomer, "job.started")

    since = next(i for i, entry in enumerate(stack.log.entries) if entry.subject == newcomer)
    started = [entry.subject for entry in stack.log.entries[since:] if entry.type == "job.started"]
    assert started.index(newcomer) <= 6  # two run, two are on deck, two more turns
    assert not all(map(stack.log.has_ended, stack.jobs))
    await stack.wait_for_ends()
    await stack.audit()


async def test_a_job_that_fits_no_slot_never_starts_and_the_others_do(start_stack: Starter) -> None:
    """Promise 3 and field case 18 with whole processes: what a model needs is compared with what each slot has."""
    stack = await start_stack(devices="sim:128MiB*1")
    await stack.submit("noop")

    async def answered(status: int) -> bool:  # until ingest has seen the fleet, nobody can say what it holds
        answer = await stack.post_job("large")
        stack.jobs += [answer.json["id"]] if answer.status == 201 else []
        return answer.status == status

    await eventually(lambda: answered(422), "a job that no known device could hold is refused")
    assert [
        entry for entry in stack.log.entries if entry.type == "job.started" and entry.subject in stack.jobs[1:]
    ] == []
    small = [await stack.submit("noop") for _ in range(5)]
    assert set(await stack.wait_for_ends(stack.jobs[0], *small)) == {"job.completed"}

    roomy = stack.spawn("gpu_worker", HEADRACE_WORKER__DEVICES="sim:512MiB*1")
    await stack.log.wait_for_any("worker.registered", pid=roomy.pid)
    await eventually(lambda: answered(201), "the larger device is known")
    assert set(await stack.wait_for_ends()) == {"job.completed"}
    await stack.audit()
