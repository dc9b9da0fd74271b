"""Several models on one device, with real children whose memory the kernel limits: who stays, who leaves, who waits."""

import asyncio
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from services.gpu_worker.process.frames import Progress
from services.gpu_worker.residency.device_memory import Refusal
from services.gpu_worker.residency.ledger import Want
from services.gpu_worker.slots.outcome import Stop, Verdict
from tests.gpu_worker.residents import MIB, named, pids, run, sim
from tests.gpu_worker.rig import PATIENCE_S, QUICK, Recorder, Rig, alive, eventually, model


async def test_two_that_fit_stay_and_the_second_round_loads_nothing(tmp_path: Path) -> None:
    a, b = named(tmp_path, "a"), named(tmp_path, "b")
    async with sim(tmp_path, 128) as own:
        first = [await run(own, spec) for spec in (a, b)]
        there = pids(own)
        second = [await run(own, spec) for spec in (a, b, a, b)]
        assert {outcome.verdict for outcome, _ in first + second} == {Verdict.COMPLETED}
        assert [len(heard.loads) for _, heard in first + second] == [2, 2, 0, 0, 0, 0]
        assert pids(own) == there
        assert own.memory.models == ("a@1", "b@1")


async def test_two_that_do_not_fit_take_turns_without_running_out_of_memory(tmp_path: Path) -> None:
    """Field cases 22 and 65: load and unload a dozen times; the kernel never sees more than the device has."""
    a, b = named(tmp_path, "a", 60), named(tmp_path, "b", 60)
    most = 0
    async with sim(tmp_path, 100) as own:

        async def sample() -> None:
            nonlocal most
            while True:
                measured = [
                    each.process.memory.measure().used_bytes or 0 for each in own.memory.children._residents.values()
                ]
                most = max(most, sum(measured))
                await asyncio.sleep(0.002)

        sampling = asyncio.create_task(sample())
        loaded: list[tuple[str, ...]] = []
        for number in range(12):
            outcome, heard = await run(own, a if number % 2 else b, 90, mib=20)
            assert outcome.verdict is Verdict.COMPLETED
            loaded += [each.evicted for each in heard.loaded]
        sampling.cancel()
        assert loaded == [(), *[("b@1",) if number % 2 else ("a@1",) for number in range(1, 12)]]
        assert 80 * MIB <= most <= 100 * MIB
        assert len(own.memory.children.describe()) == 1


async def test_what_is_shown_follows_what_the_kernel_sees(tmp_path: Path) -> None:
    """Field case 67: the figure that others decide by falls when a model leaves; it is right before, with and after."""
    a, b = named(tmp_path, "a", 70), named(tmp_path, "b", 50)

    def kernel(own: Rig) -> int:
        children = own.memory.children._residents.values()
        return sum(each.process.memory.measure().used_bytes or 0 for each in children)

    async with sim(tmp_path, 200) as own:
        shown = [(own.memory.ledger.held_bytes, kernel(own))]
        for spec in (a, b):
            await run(own, spec, 80, mib=5)
            shown.append((own.memory.ledger.held_bytes, kernel(own)))
        await own.memory.evict_model("a")
        shown.append((own.memory.ledger.held_bytes, kernel(own)))
        await own.memory.empty()
        shown.append((own.memory.ledger.held_bytes, kernel(own)))
        for told, real in shown:
            assert 0 <= told - real <= 0.03 * real + 2 * MIB
        assert [told // MIB // 10 for told, _ in shown] == [0, 7, 12, 5, 0]


async def test_a_large_job_after_a_small_one_gets_the_room_of_idle_models(tmp_path: Path) -> None:
    """Large input after small after large: the slice follows the job, idle models make way, nothing fails."""
    a, b = named(tmp_path, "a", 20), named(tmp_path, "b", 20)
    async with sim(tmp_path, 128) as own:
        await run(own, b, 30)
        for budget_mib, mib in ((120, 90), (30, 5), (120, 90), (30, 5)):
            outcome, _ = await run(own, a, budget_mib, mib=mib)
            assert outcome.verdict is Verdict.COMPLETED
        assert list(pids(own)) == ["a@1"]
        tight, _ = await run(own, a, 30, mib=90)
        assert tight.code == "out_of_memory"


async def test_a_model_whose_time_is_over_leaves_by_itself_and_a_pinned_one_stays(tmp_path: Path) -> None:
    brief = replace(named(tmp_path, "brief"), keep_warm_s=0.2)
    pinned = replace(named(tmp_path, "pinned"), keep_warm_s=0.2, pin=True)
    async with sim(tmp_path, 200) as own:
        await run(own, pinned)
        await run(own, brief)
        there = pids(own)
        await eventually(lambda: list(pids(own)) == ["pinned@1"], "the brief one is gone")
        assert not alive(there["brief@1"])
        assert own.memory.ledger.room_bytes < 160 * MIB


async def test_never_more_models_than_allowed(tmp_path: Path) -> None:
    async with sim(tmp_path, 500, max_models=2) as own:
        for name in "abc":
            await run(own, named(tmp_path, name))
        assert own.memory.models == ("b@1", "c@1")


async def test_a_second_slot_shares_the_device_and_waits_with_a_reason(tmp_path: Path) -> None:
    a, b = named(tmp_path, "a"), named(tmp_path, "b")
    async with sim(tmp_path, 100) as own:
        other = own.beside()
        first = asyncio.create_task(run(own, a, 60, steps=30, step_s=0.02))
        await eventually(lambda: own.slot.state == "busy", "a runs")
        second = asyncio.create_task(run(other, b, 60))
        await eventually(lambda: other.slot.state == "waiting", "b waits")
        assert other.slot.waits_for == "b@1 needs 60 MiB; 40 MiB of 100 MiB are free (busy 60 MiB)"
        assert {(await each)[0].verdict for each in (first, second)} == {Verdict.COMPLETED}
        small = [slot.attempt(spec, 45, steps=100_000, step_s=0.02) for slot, spec in ((own, a), (other, b))]
        running = [slot.begin(attempt)[1] for slot, attempt in zip((own, other), small, strict=True)]
        await eventually(lambda: own.slot.state == other.slot.state == "busy", "both run at once")
        for slot, attempt in zip((own, other), small, strict=True):
            slot.slot.stop(attempt.job, attempt.fence, Stop.CANCEL)
        assert {(await each).how for each in running} == {"cooperative"}


async def test_who_waits_for_bytes_is_not_overtaken(tmp_path: Path) -> None:
    """A warm model that wants a few bytes more would else take what a large one waits for, again and again."""
    a, b, c = named(tmp_path, "a"), named(tmp_path, "b"), named(tmp_path, "c", 15)
    async with sim(tmp_path, 100) as own:
        await run(own, c, 20)
        other, third = own.beside(), own.beside()
        _, first = own.begin(own.attempt(a, 60, steps=50, step_s=0.02))
        await eventually(lambda: own.slot.state == "busy", "a runs")
        _, waiting = other.begin(other.attempt(b, 60))
        await eventually(lambda: other.slot.state == "waiting", "b waits")
        assert own.memory.ledger.free_bytes > 18 * MIB
        _, again = third.begin(third.attempt(c, 30))
        await asyncio.sleep(0)
        assert third.slot.state == "waiting"
        assert {(await each).verdict for each in (first, waiting, again)} == {Verdict.COMPLETED}


async def test_an_idle_child_is_held_to_what_it_has_once_others_come(tmp_path: Path) -> None:
    a, b = named(tmp_path, "a"), named(tmp_path, "b")
    async with sim(tmp_path, 160) as own:
        await run(own, a, 90)
        pid = pids(own)["a@1"]
        wide, _ = resource.prlimit(pid, resource.RLIMIT_DATA)
        await run(own, b, 90)
        narrow, _ = resource.prlimit(pid, resource.RLIMIT_DATA)
        (idle_bytes,) = (each["bytes"] for each in own.memory.children.describe() if each["model"] == "a@1")
        assert wide - narrow == 90 * MIB - int(str(idle_bytes))


async def test_a_cancel_while_it_waits_for_room_is_at_once_and_hurts_nobody(tmp_path: Path) -> None:
    a, b = named(tmp_path, "a"), named(tmp_path, "b")
    async with sim(tmp_path, 100, replace(QUICK, cancel_grace_s=30)) as own:
        other = own.beside()
        first = asyncio.create_task(run(own, a, 60, steps=50, step_s=0.02))
        await eventually(lambda: own.slot.state == "busy", "a runs")
        attempt = other.attempt(b, 60)
        _, second = other.begin(attempt)
        await eventually(lambda: other.slot.state == "waiting", "b waits")
        other.slot.stop(attempt.job, attempt.fence, Stop.CANCEL)
        outcome = await asyncio.wait_for(second, PATIENCE_S)
        assert (outcome.verdict, outcome.how) == (Verdict.CANCELLED, "cooperative")
        assert (await first)[0].verdict is Verdict.COMPLETED


async def test_room_that_nothing_will_make_ends_the_wait_at_nobodys_cost(tmp_path: Path) -> None:
    """Field case 70: other processes hold the device; the job goes back to the queue with the reason."""
    async with sim(tmp_path, 100, replace(QUICK, room_s=0.2)) as own:
        own.memory.set_foreign_bytes(80 * MIB)
        outcome, _ = await run(own, named(tmp_path, "a"), 60)
        assert outcome.verdict is Verdict.HANDED_BACK
        assert "other processes 80 MiB" in outcome.message


async def test_more_than_the_device_has_is_an_error_of_its_own(tmp_path: Path) -> None:
    async with sim(tmp_path, 100) as own:
        await run(own, replace(named(tmp_path, "p", 50), pin=True), 60)
        outcome, _ = await run(own, named(tmp_path, "a"), 60)
        assert (outcome.verdict, outcome.code) == (Verdict.FAILED, "too_large")


async def test_a_job_that_runs_alone_has_a_fresh_child_and_the_whole_device(tmp_path: Path) -> None:
    """Field case 71: after it failed for want of memory it is run where nothing of the last try is left."""
    a, b = named(tmp_path, "a"), named(tmp_path, "b")
    async with sim(tmp_path, 160) as own:
        await run(own, b)
        failed, _ = await run(own, a, 64, mib=100)
        before = pids(own)
        alone = replace(own.attempt(a, 64, mib=100), alone=True)
        outcome = await own.slot.run(alone, Recorder())
        assert (failed.code, outcome.verdict) == ("out_of_memory", Verdict.COMPLETED)
        assert set(pids(own).values()).isdisjoint(before.values())
        assert len(pids(own)) == 1


async def test_what_has_to_leave_is_given_to_nobody_from_that_moment_on(tmp_path: Path) -> None:
    """Else the pass that took it in the same turn of the loop would be killed with it."""
    a = replace(named(tmp_path, "a"), keep_warm_s=60.0)
    async with sim(tmp_path, 160) as own:
        want = Want(a, 64 * MIB)
        await own.memory.load_model(want)
        resident = own.memory.at_once("one", want)
        assert resident is not None
        await own.memory.evict_model("a")  # it is busy: it leaves when it is idle
        own.memory.release(resident, None)
        assert own.memory.at_once("two", want) is None

        await eventually(lambda: not pids(own), "it has left")
        await own.memory.load_model(want)
        for holding in own.memory.children.holdings:
            holding.idle_since_s -= 61
        own.memory._on_expiry()
        assert own.memory.at_once("two", want) is None


async def test_an_operator_loads_and_evicts_models(tmp_path: Path) -> None:
    a, b = named(tmp_path, "a"), named(tmp_path, "b")
    async with sim(tmp_path, 100) as own:
        assert await own.memory.load_model(Want(a, 64 * MIB)) is None
        _, heard = await run(own, a, steps=1)
        assert heard.loads == []
        running = asyncio.create_task(run(own, a, steps=30, step_s=0.02))
        await eventually(lambda: own.slot.state == "busy", "a runs")
        assert await own.memory.evict_model("a")  # once it is idle
        assert (await running)[0].verdict is Verdict.COMPLETED
        await eventually(lambda: own.memory.children.describe() == [], "it is gone")
        assert not await own.memory.evict_model("a")
        assert isinstance(await own.memory.load_model(Want(b, 101 * MIB)), Refusal)
        broken = replace(b, entry=tmp_path / "nothing.py")
        assert isinstance(await own.memory.load_model(Want(broken, 64 * MIB)), Refusal)


async def test_bytes_of_a_process_that_cannot_be_ended_are_nobodys_and_its_slot_is_quarantined(tmp_path: Path) -> None:
    """A process in the driver survives SIGKILL for a while: here nobody waits for its end at all."""
    a, b = named(tmp_path, "a", LOAD_S="0"), named(tmp_path, "b")
    async with sim(tmp_path, 100, replace(QUICK, reap_s=0.0, room_s=0.0, cancel_grace_s=0.0)) as own:
        await run(own, a, 60)
        stuck = own.memory.children._residents[1]
        stuck.process.signal_group = lambda number: None  # type: ignore[method-assign]  # as in state D
        stuck.process.send = lambda frame: None  # type: ignore[method-assign]
        outcome, _ = await run(own, b, 90)
        assert (outcome.verdict, own.slot.quarantined) == (Verdict.HANDED_BACK, True)
        assert "stuck" in [each["state"] for each in own.memory.children.describe()]
        assert own.memory.ledger.room_bytes < 60 * MIB
        del stuck.process.signal_group, stuck.process.send
        await stuck.reap()
        await eventually(lambda: own.memory.ledger.room_bytes == 100 * MIB, "its bytes are back")


@pytest.mark.parametrize("load", ["os._exit(1)", "time.sleep(60)"])
async def test_a_model_that_fails_to_load_gives_its_bytes_back(tmp_path: Path, load: str) -> None:
    entry = tmp_path / "fails.py"
    entry.write_text(f"import os, time\ndef load(device, prepared):\n    {load}\ndef run(*a): pass\n")
    spec = replace(model("noop"), name="fails", entry=entry)
    async with sim(tmp_path, 100, replace(QUICK, load_s=1.0)) as own:
        outcome, _ = await run(own, spec, 90)
        assert outcome.verdict is Verdict.FAILED
        assert own.memory.ledger.held_bytes == 0
        assert (await run(own, named(tmp_path, "a"), 90))[0].verdict is Verdict.COMPLETED


async def test_progress_of_two_models_goes_to_the_right_listener(tmp_path: Path) -> None:
    a, b = named(tmp_path, "a"), named(tmp_path, "b")
    async with sim(tmp_path, 200) as own:
        other = own.beside()
        (_, first), (_, second) = await asyncio.gather(run(own, a, steps=3), run(other, b, steps=5))
        assert ({f.total for f in first.of(Progress)}, {f.total for f in second.of(Progress)}) == ({3}, {5})
