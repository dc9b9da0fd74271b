"""One leader over a real store: offers, withdrawals, leases, timers, contradictions. Workers are the test's own."""

import time

from contracts import events as ev
from contracts.job import JobStatus
from contracts.store import Store, Word, keys
from contracts.store.write import JobGuard, WorkerFields, Write
from services.scheduler.verify import verify
from tests.scheduler.rig import CONFIG, PATIENT, POOL, Log, Worker, candidate, eventually, submit, submit_many, until

LEASE_S = CONFIG.worker_lease_ms / 1000


async def test_a_job_is_offered_to_a_registered_worker_and_the_fold_follows_it_to_its_end(
    store: Store, store_url: str
) -> None:
    log = Log(store)
    async with candidate(store_url) as leader, (await Worker(store).register()).beating() as worker:
        job_id = await submit(store, vram_bytes=5)

        attempt = await worker.start(await worker.offer())
        assert await worker.complete(attempt) is Word.APPLIED

        data = (await log.wait_for("job.assigned", job_id)).raw_data()
        assert (data["workerId"], data["bytes"]) == (worker.id, 5)
        assert (data["policy"], data["i"], data["of"], data["why"]) == ("blfq", 0, 1, "idle")
        await until(lambda: leader.state.jobs[job_id].status is JobStatus.COMPLETED)


async def test_jobs_run_in_the_order_of_their_admission_and_the_log_can_be_checked(
    store: Store, store_url: str
) -> None:
    """Field case 20: fifty numbered jobs on one device start in the order of their submission."""
    log = Log(store)
    async with candidate(store_url) as leader, (await Worker(store).register()).beating() as worker:
        submitted = [await submit(store) for _ in range(50)]

        ran = [await worker.run_next() for _ in submitted]

        assert ran == submitted
        await log.wait_for("job.completed", submitted[-1])
        assert verify(log.entries) == []
        # nobody else wrote about these jobs: a refusal would mean a turn on a fold that lacked the turn before
        assert leader.leader is not None
        assert leader.leader.refused_count == 0


async def test_an_urgent_job_overtakes_the_one_on_deck(store: Store, store_url: str) -> None:
    """Field case 19: the offer is withdrawn first, and the worker hears of both."""
    log = Log(store)
    async with candidate(store_url), (await Worker(store).register()).beating() as worker:
        first, low = await submit(store), await submit(store, priority="low")
        running = await worker.start(await worker.offer())
        on_deck = await worker.offer()
        assert (running.job_id, on_deck.job_id) == (first, low)

        urgent = await submit(store, priority="urgent")
        overtaking = await worker.offer()

        assert (overtaking.job_id, worker.withdrawn) == (urgent, [on_deck.offer_id])
        _, late = await worker.try_start(on_deck)
        assert late is Word.REFUSED
        await worker.complete(running)
        await worker.complete(await worker.start(overtaking))
        assert await worker.run_next() == low
        await log.wait_for("job.completed", low)
        assert verify(log.entries) == []


async def test_a_job_expires_on_time_while_every_slot_is_busy(store: Store, store_url: str) -> None:
    """Field cases 56 and 58: `expired` comes at the deadline, not when the running job ends."""
    log = Log(store)
    async with candidate(store_url), (await Worker(store).register()).beating() as worker:
        await submit(store)
        await worker.start(await worker.offer())
        jobs = [await submit(store, start_by_ms=1_500) for _ in range(3)]
        on_deck = await worker.offer()

        expired = [await log.wait_for("job.expired", job_id) for job_id in jobs]

        for entry in expired:
            late_ms = int(entry.position.partition("-")[0]) - int(str(entry.raw_data()["startByAtMs"]))
            assert 0 <= late_ms < 1_000
        _, word = await worker.try_start(on_deck)
        assert word is not Word.APPLIED
        assert await store.client.hget(keys.worker(POOL, worker.id), "d0") is None


async def test_the_job_of_a_silent_worker_runs_elsewhere_within_lease_and_two_seconds(
    store: Store, store_url: str
) -> None:
    """Field cases 38, 39 and 47: a dead worker's job goes to a living one, and the dead one gets nothing new."""
    log = Log(store)
    async with candidate(store_url):
        async with (await Worker(store, slots=2).register()).beating() as dying:
            job_id, reserved = await submit(store), await submit(store)
            attempt = await dying.start(await dying.offer())
            died_s = time.monotonic()
        async with (await Worker(store).register()).beating() as living:
            again = [await living.start(await living.offer())]
            assert time.monotonic() - died_s < LEASE_S + 2
            await living.complete(again[0])
            again.append(await living.start(await living.offer()))

            assert {attempt.job_id for attempt in again} == {job_id, reserved}
            second = next(one for one in again if one.job_id == job_id)
            assert (second.fence, second.attempt) == (2, 2)
            assert await dying.complete(attempt) is Word.FENCED
            assert await dying.beat() is Word.GONE
            await living.complete(again[1])
            await log.wait_for("job.completed", again[1].job_id)
            assert len(log.of("job.lease_lost", job_id)) == 1
            assert await store.client.exists(keys.work(POOL, dying.id), keys.worker(POOL, dying.id)) == 0


async def test_a_worker_lost_on_its_last_attempt_fails_the_job_with_its_reason(store: Store, store_url: str) -> None:
    """Field case 36: two leases lost, both in the log, then `worker_lost` with the count of attempts."""
    log = Log(store)
    async with candidate(store_url):
        job_id = await submit(store, max_attempts=2)
        for _ in range(2):
            async with (await Worker(store).register()).beating() as worker:
                await worker.start(await worker.offer())

        failed = await log.wait_for("job.failed", job_id)

        assert len(log.of("job.lease_lost", job_id)) == 2
        assert failed.raw_data()["error"] == {"code": "worker_lost", "retryable": True}
        assert failed.raw_data()["attempts"] == 2
        assert await store.jobs.page(POOL, "t_a", closed=False) == []


async def test_an_attempt_its_worker_does_not_list_is_given_to_somebody_again(store: Store, store_url: str) -> None:
    """Field case 49: a supervisor that forgot an attempt (died between the start and its note) does not keep it."""
    async with candidate(store_url), (await Worker(store).register()).beating() as worker:
        await submit(store)
        attempt = await worker.start(await worker.offer())
        worker.held.clear()

        again = await worker.offer()

        assert again.job_id == attempt.job_id
        assert again.fence == 1


async def test_a_long_job_is_never_taken_from_a_worker_that_beats(store: Store, store_url: str) -> None:
    """Field cases 40 and 43: several leases of work, one start."""
    log = Log(store)
    async with candidate(store_url), (await Worker(store).register()).beating() as worker:
        job_id = await submit(store)
        attempt = await worker.start(await worker.offer())
        beats_until = int(await store.client.hget(keys.worker(POOL, worker.id), "b") or 0) + 25
        while int(await store.client.hget(keys.worker(POOL, worker.id), "b") or 0) < beats_until:
            await log.read(block_ms=100)

        await worker.complete(attempt)
        await log.wait_for("job.completed", job_id)
        assert len(log.of("job.started", job_id)) == 1


async def test_ten_thousand_timers_due_at_once_do_not_stall_dispatch(store: Store, store_url: str) -> None:
    log = Log(store)
    async with candidate(store_url, PATIENT) as leader, (await Worker(store).register()).beating() as worker:
        seconds, micros = await store.client.time()
        due_ms = seconds * 1000 + micros // 1000 + 5_000
        await submit_many(store, 10_000, run_at_ms=due_ms)
        await until(lambda: leader.state.admitted == 10_000)
        while not log.of("job.queued"):
            await log.read(block_ms=1000)

        asked_s = time.monotonic()
        job_id = await submit(store, "t_b", priority="urgent")
        while await worker.run_next() != job_id:
            assert time.monotonic() - asked_s < 5

        assert time.monotonic() - asked_s < 2
        await until(lambda: leader.state.policy.waiting_count > 9_000, seconds=20)


async def test_a_slot_that_contradicts_the_fold_is_set_aside_and_the_job_goes_elsewhere(
    store: Store, store_url: str
) -> None:
    log = Log(store)
    async with candidate(store_url) as leader, (await Worker(store).register()).beating() as broken:
        await store.client.hset(keys.worker(POOL, broken.id), "d0", "job_x offer_y")
        job_id = await submit(store)

        mismatch = await log.wait_for("scheduler.mismatch")
        assert mismatch.raw_data() == {
            "jobId": job_id, "reason": "job.assigned REFUSED", "workerId": broken.id, "slot": 0
        }  # fmt: skip
        async with (await Worker(store).register()).beating() as sound:
            assert await sound.run_next() == job_id
        assert leader.state.mismatches == 1


async def test_a_job_that_contradicts_the_fold_leaves_choice_and_holds_up_nobody(store: Store, store_url: str) -> None:
    log = Log(store)
    async with candidate(store_url) as leader:
        broken, sound = await submit(store), await submit(store)
        await until(lambda: sound in leader.state.jobs)
        await store.client.delete(keys.job(POOL, broken))
        async with (await Worker(store).register()).beating() as worker:
            assert await worker.run_next() == sound

        mismatch = await log.wait_for("scheduler.mismatch")
        assert mismatch.raw_data() == {"jobId": broken, "reason": "job.assigned GONE"}


async def test_an_entry_that_nobody_can_read_stops_nothing(store: Store, store_url: str) -> None:
    async with candidate(store_url), (await Worker(store).register()).beating() as worker:
        await store.client.xadd(keys.log(POOL), {"x": "no such entry"})
        await store.client.xadd(keys.log(POOL), {"t": "job.created", "j": "job_x", "n": "1", "d": "{"})
        job_id = await submit(store)

        assert await worker.run_next() == job_id


async def test_one_of_fifty_due_jobs_that_was_broken_from_outside_is_set_aside_and_the_others_start_once(
    store: Store, store_url: str
) -> None:
    """Field case 32: an entry that nobody can read and a key of the wrong type, in the middle of what is due."""
    log = Log(store)
    async with candidate(store_url) as leader, (await Worker(store, slots=4).register()).beating() as worker:
        due_ms = int((await store.end_of_log(POOL)).partition("-")[0]) + 1_000
        jobs = [await submit(store, run_at_ms=due_ms) for _ in range(50)]
        broken = jobs[20]
        await store.client.xadd(keys.log(POOL), {"t": "job.queued", "j": jobs[30], "n": "3", "h": "0", "d": "{not"})
        await store.client.set(keys.job(POOL, broken), "not a hash")

        ran = [await worker.run_next() for _ in range(49)]
        after = await submit(store)

        assert await worker.run_next() == after
        assert sorted(ran) == [job_id for job_id in jobs if job_id != broken]
        alarm = await log.wait_for("scheduler.mismatch")
        assert alarm.raw_data()["jobId"] == broken
        assert leader.state.aside_count == 1
        await log.wait_for("job.completed", count=50)
        assert len(log.of("job.started")) == 50


async def test_a_job_cancelled_while_it_lies_on_a_deck_leaves_the_slot_free(store: Store, store_url: str) -> None:
    """Field cases 16 and 53: cancelled at the moment of its offer, again and again; the slot never leaks."""
    async with candidate(store_url) as leader, (await Worker(store).register()).beating() as worker:
        for number in range(30):
            job_id = await submit(store)
            offer = await worker.offer()
            cancel = Write(
                job_id, (ev.JobCancelled(how="queued"),), guard=JobGuard(states=("queued",)), closes_for="t_a",
                worker_fields=(WorkerFields(worker.id, {"d0": ""}),),
            )  # fmt: skip
            assert (await store.jobs.append(POOL, cancel, f"cancel{number}")).applied
            _, word = await worker.try_start(offer)
            assert word is not Word.APPLIED

        last = await submit(store)
        assert await worker.run_next() == last
        await until(lambda: leader.state.jobs[last].status is JobStatus.COMPLETED)
        assert leader.state.policy.ledger.charges == {}


async def test_the_leader_copies_weights_into_the_pools_own_log(store: Store, store_url: str) -> None:
    log = Log(store)
    async with candidate(store_url) as leader:
        await store.directory.change(
            lambda _: ev.TenantCreated(tenant_id="t_paid", tier="enterprise", weight=0.5), "t_paid"
        )

        applied = await log.wait_for("policy.applied")

        assert applied.raw_data()["weights"] == {"t_paid": 4.0}
        await until(lambda: leader.state.policy.weights.get("t_paid") == 4_000)


async def test_an_idle_leader_writes_nothing_renews_its_lease_and_moves_the_cursor(
    store: Store, store_url: str
) -> None:
    async with candidate(store_url):
        await submit(store)
        seen = await _leader_until(store)
        await eventually(lambda: _leader_until(store), lambda now: now != seen)

        assert await store.client.xlen(keys.log(POOL)) == 1
        info = {group["name"]: group for group in await store.client.xinfo_groups(keys.log(POOL))}
        assert info[b"scheduler"]["lag"] == 0
        assert info[b"scheduler"]["last-delivered-id"].decode() == await store.end_of_log(POOL)


async def _leader_until(store: Store) -> bytes:
    return await store.client.hget(keys.leader(POOL), "until") or b""
