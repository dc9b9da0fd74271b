"""Who comes first: the urgent job, and the tenant that waits behind somebody's backlog."""

import pytest

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
    await stack.wait_for_ends(stack.jobs[0])

    roomy = stack.spawn("gpu_worker", HEADRACE_WORKER__DEVICES="sim:512MiB*1")
    await stack.log.wait_for_any("worker.registered", pid=roomy.pid)
    await eventually(lambda: answered(201), "the larger device is known")
    assert set(await stack.wait_for_ends()) == {"job.completed"}
    await stack.audit()
