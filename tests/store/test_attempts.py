"""What a worker may write and what it may not any more: fences, offers, the count of its own writes."""

from contracts import events as ev
from contracts.store import Word, keys
from contracts.store.attempts import Attempt, read_offer
from contracts.store.write import JobGuard, WorkEntry, WorkerGuard, Write
from tests.store.play import POOL, TENANT, Play


async def loses_its_lease(play: Play, attempt: Attempt) -> None:
    """The leader takes the attempt back; the worker does not know yet."""
    error = ev.ErrorFacts(code="worker_lost", retryable=True)
    number = attempt.attempt
    write = Write(
        attempt.job_id,
        (
            ev.JobLeaseLost(worker_id=attempt.worker_id, attempt=number),
            ev.JobAttemptFailed(error=error, attempt=number, will_retry=True),
        ),
        guard=JobGuard(fence=attempt.fence, worker_id=attempt.worker_id),
        worker_guard=WorkerGuard(attempt.worker_id, heartbeat=1),
    )
    assert [verdict.word for verdict in (await play.decides(write)).verdicts] == [Word.APPLIED]


async def test_the_first_accepted_start_takes_the_job_from_all_other_decks(play: Play) -> None:
    """A better job may be offered on several decks; only one of them gets it."""
    other, job_id = await play.registers(), await play.job()
    here, on_this = play.offering(job_id, slot=0)
    there, on_other = play.offering(job_id, slot=0, worker=other)
    assert [verdict.word for verdict in (await play.decides(on_this, on_other)).verdicts] == [Word.APPLIED] * 2

    first, event = play.starting(there, other)
    late, late_event = play.starting(here)

    assert (await play.store.attempts.start(first, event)).word is Word.APPLIED
    refused = await play.store.attempts.start(late, late_event)
    assert (refused.word, refused.body) == (Word.FENCED, b"")
    assert (await play.types(job_id)).count("job.started") == 1


async def test_a_deck_takes_the_members_of_one_batch_and_nothing_else_until_all_of_them_are_gone(play: Play) -> None:
    """The first of a batch may be refused: the others are offered all the same."""
    jobs = [await play.job() for _ in range(4)]
    members = [play.offering(job_id, batch="7-0") for job_id in jobs[:3]]
    refused = Write(
        jobs[3], members[0][1].events, guard=JobGuard(states=("completed",)), worker_guard=members[0][1].worker_guard
    )
    words = [verdict.word for verdict in (await play.decides(refused, *(write for _, write in members))).verdicts]
    assert words == [Word.CONFLICT, Word.APPLIED, Word.APPLIED, Word.APPLIED]

    async def is_taken() -> bool:
        others = [play.offering(jobs[3])[1], play.offering(jobs[3], batch="8-0")[1]]
        asked = [(await play.decides(write)).verdicts[0] for write in others]
        assert {(verdict.word, verdict.refused_by) for verdict in asked} <= {
            (Word.REFUSED, "worker"),
            (Word.APPLIED, ""),
        }
        return asked[0].word is Word.REFUSED

    first, second, third = [offer for offer, _ in members]
    attempt, event = play.starting(first)
    assert (await play.store.attempts.start(attempt, event)).word is Word.APPLIED
    assert await is_taken()
    assert (await play.store.attempts.decline(POOL, play.worker, second, "draining")).word is Word.APPLIED
    assert await is_taken()
    assert (await play.store.attempts.decline(POOL, play.worker, third, "draining")).word is Word.APPLIED
    assert not await is_taken()


async def test_a_late_clear_frees_only_its_own_offer(play: Play) -> None:
    """An offer that was overtaken on this deck must not free it for a third."""
    old, new = await play.job(), await play.job()
    offer, _ = await play.offers(old), await play.store.client.hdel(keys.worker(POOL, play.worker), "d0")
    await play.offers(new)
    assert (await play.store.attempts.decline(POOL, play.worker, offer, "draining")).word is Word.APPLIED
    assert (await play.decides(play.offering(await play.job())[1])).verdicts[0].word is Word.REFUSED


async def test_a_withdrawn_cancelled_or_expired_offer_cannot_be_started(play: Play) -> None:
    """Field case 53: author code never runs before an accepted start, so a cancel of a queued job is final."""
    withdrawn, cancelled, expired = [await play.job() for _ in range(3)]
    offers = [await play.offers(job_id, slot) for slot, job_id in enumerate((withdrawn, cancelled, expired))]
    await play.store.attempts.decline(POOL, play.worker, offers[0], "withdrawn")
    cancel = Write(cancelled, (ev.JobCancelled(how="queued"),), guard=JobGuard(sequence=2), closes_for=TENANT)
    await play.store.jobs.append(POOL, cancel, "w")
    late = ev.JobExpired(start_by_at_ms=1, waited_ms=1)
    await play.decides(Write(expired, (late,), guard=JobGuard(states=("queued",)), closes_for=TENANT))

    answers = [await play.store.attempts.start(*play.starting(offer)) for offer in offers]

    assert [answer.word for answer in answers] == [Word.REFUSED] * 3


async def test_a_start_that_is_repeated_after_the_end_is_no_start(play: Play) -> None:
    """A request that lay in a buffer must not make author code run a second time."""
    attempt = await play.running()
    event = play.starting(attempt.offer)[1]
    assert (await play.store.attempts.start(attempt, event)).word is Word.APPLIED
    await play.completes(attempt)

    assert (await play.store.attempts.start(attempt, event)).word is Word.FENCED


async def test_a_former_owner_changes_nothing_and_leaves_one_trace(play: Play) -> None:
    """Field case 40: a worker that was only slow finds its attempt with somebody else."""
    attempt = await play.running()
    await loses_its_lease(play, attempt)
    before = await play.types(attempt.job_id)

    for events in ([ev.JobProgress(progress=90)], [ev.LatentsDecoded()], [ev.JobCompleted()]):
        late = await play.store.attempts.emit(attempt, events, line=b"\nlate", closes=True)
        assert late.word is Word.FENCED

    history = await play.store.jobs.history(POOL, attempt.job_id, with_body=True)
    assert history is not None
    assert [entry.type for entry in history.entries] == [*before, "job.event_rejected"]
    assert history.entries[-1].raw_data() == {"offendingType": "job.progress", "why": "fenced"}
    assert history.body == b"{}"
    assert history.folded() == history.state
    assert await play.store.jobs.page(POOL, TENANT, closed=False) == [attempt.job_id]


async def test_the_same_worker_with_the_fence_of_its_former_attempt_is_fenced(play: Play) -> None:
    """A frozen child of a worker that got the job again must not write into the new attempt."""
    former = await play.running()
    await loses_its_lease(play, former)
    offer = await play.offers(former.job_id, slot=0, fence=1)
    attempt, event = play.starting(offer)
    assert (await play.store.attempts.start(attempt, event)).word is Word.APPLIED

    assert (await play.store.attempts.emit(former, [ev.JobCompleted()], closes=True)).word is Word.FENCED
    assert (await play.store.attempts.emit(attempt, [ev.JobProgress(progress=1)])).word is Word.APPLIED


async def test_a_fence_that_was_never_given_is_refused_without_a_trace(play: Play) -> None:
    attempt = await play.running()
    invented = Attempt(POOL, play.worker, attempt.offer, fence=7, attempt=7)
    before = await play.types(attempt.job_id)

    assert (await play.store.attempts.emit(invented, [ev.JobCompleted()], closes=True)).word is Word.FENCED
    assert await play.types(attempt.job_id) == before


async def test_a_hand_back_gives_the_attempt_back_and_the_fence_still_rises(play: Play) -> None:
    """Three hand-backs must neither use up the attempts nor let a former owner pass."""
    first = await play.running()
    back = await play.store.attempts.emit(first, [ev.JobQueued(reason="handed_back", attempt=0)], not_cancelled=True)
    assert back.word is Word.APPLIED
    offer, write = play.offering(first.job_id, fence=1)
    await play.decides(write)
    second = Attempt(POOL, play.worker, offer, fence=2, attempt=1)
    event = ev.JobStarted(worker_id=play.worker, offer_id=offer.offer_id, slot=0, device="cpu", attempt=1)

    assert (await play.store.attempts.start(second, event)).word is Word.APPLIED

    history = await play.store.jobs.history(POOL, first.job_id)
    assert history is not None
    assert (history.state.attempt, history.state.fence) == (1, 2)
    assert (await play.store.attempts.emit(first, [ev.JobProgress(progress=1)])).word is Word.FENCED


async def test_a_failure_does_not_pass_over_a_cancel_and_its_number_is_used_up(play: Play) -> None:
    """Lost or failed with a cancel requested is cancelled."""
    attempt = await play.running()
    cancel = Write(attempt.job_id, (ev.JobCancelRequested(by="a"),), guard=JobGuard(sequence=3))
    await play.store.jobs.append(POOL, cancel, "w")
    error = ev.ErrorFacts(code="internal")
    failed = [ev.JobAttemptFailed(error=error, attempt=1, will_retry=True, next_attempt_at_ms=1)]
    emit = play.store.attempts.emit

    assert (await emit(attempt, failed, not_cancelled=True)).word is Word.CONFLICT
    again = await play.store.attempts.repeat(attempt, failed, not_cancelled=True)
    assert again.word is Word.CONFLICT
    assert (await emit(attempt, [ev.JobCancelled(how="cooperative")], closes=True)).word is Word.APPLIED

    assert (await play.types(attempt.job_id))[3:] == ["job.cancel_requested", "job.cancelled"]


async def test_a_number_that_comes_too_early_is_refused_and_not_used_up(play: Play) -> None:
    attempt = await play.running()
    attempt.k = 1

    assert (await play.store.attempts.emit(attempt, [ev.JobProgress(progress=2)])).word is Word.REFUSED
    attempt.k = 0
    assert (await play.store.attempts.emit(attempt, [ev.JobProgress(progress=1)])).word is Word.APPLIED
    assert (await play.store.attempts.emit(attempt, [ev.JobProgress(progress=2)])).word is Word.APPLIED


async def test_a_fenced_job_does_not_keep_the_next_one_from_starting(play: Play) -> None:
    ending = await play.running()
    await loses_its_lease(play, ending)
    starting, event = play.starting(await play.offers(await play.job(b"next"), slot=1))

    released, started = await play.store.attempts.release_and_start(
        ending, ev.JobDeviceReleased(gpu_ms=1), starting, event
    )

    assert (released.word, started.word, started.body) == (Word.FENCED, Word.APPLIED, b"next")


async def test_an_offer_that_is_gone_does_not_keep_the_slot_from_being_released(play: Play) -> None:
    ending = await play.running()
    offer = await play.offers(await play.job(), slot=1)
    await play.store.attempts.decline(POOL, play.worker, offer, "withdrawn")
    starting, event = play.starting(offer)

    released, started = await play.store.attempts.release_and_start(
        ending, ev.JobDeviceReleased(gpu_ms=1), starting, event
    )

    assert (released.word, started.word) == (Word.APPLIED, Word.REFUSED)
    assert (await play.types(ending.job_id))[-1] == "job.device_released"


async def test_a_declined_offer_leaves_the_deck_empty_for_the_next(play: Play) -> None:
    offer = await play.offers(await play.job())
    assert (await play.store.attempts.decline(POOL, play.worker, offer, "drain")).word is Word.APPLIED
    assert (await play.store.attempts.decline(POOL, play.worker, offer, "drain")).word is Word.REFUSED

    assert await play.offers(await play.job())


async def test_a_beat_says_what_is_held_and_acknowledges_what_is_done(play: Play) -> None:
    running, cancelled, lost = [await play.running(slot) for slot in range(3)]
    cancel = Write(cancelled.job_id, (ev.JobCancelRequested(by="a"),), guard=JobGuard(sequence=3))
    await play.store.jobs.append(POOL, cancel, "w")
    await loses_its_lease(play, lost)
    reader = play.store.work(POOL, play.worker)
    messages = [message for _ in range(2) for message in await reader.read(block_ms=100)]
    held = [(attempt.job_id, attempt.fence) for attempt in (running, cancelled, lost)]

    beat = await play.store.attempts.heartbeat(POOL, play.worker, held, [message.position for message in messages])

    assert (beat.counter, beat.state, beat.held) == (2, "open", ("1", "c", "0"))
    assert len(messages) == 3
    assert await play.store.client.xlen(keys.work(POOL, play.worker)) == 0
    assert (await play.store.client.xpending(keys.work(POOL, play.worker), keys.GROUP_WORK))["pending"] == 0


async def test_ingest_is_known_by_its_last_four_writes_and_no_more(play: Play) -> None:
    attempt = await play.running()
    for number in range(5):
        write = Write(attempt.job_id, (ev.JobCancelRequested(by="a"),), guard=JobGuard(sequence=3 + number))
        assert (await play.store.jobs.append(POOL, write, f"w{number}")).word is Word.APPLIED
    again = Write(attempt.job_id, (ev.JobCancelRequested(by="a"),), guard=JobGuard(sequence=3))

    words = [(await play.store.jobs.append(POOL, again, f"w{number}")).word for number in range(5)]

    assert words == [Word.CONFLICT] + [Word.APPLIED] * 4
    assert (await play.types(attempt.job_id)).count("job.cancel_requested") == 5


async def test_a_write_about_a_job_that_is_gone_is_gone_and_does_not_bring_it_back(play: Play) -> None:
    attempt = await play.running()
    await play.completes(attempt)
    await play.decides(Write(attempt.job_id, (), guard=JobGuard(states=("completed",)), forget=(TENANT, 60)))
    before = await play.log_length()
    unguarded = Write(attempt.job_id, (ev.JobCancelRequested(by="a"),))

    words = [
        (await play.store.jobs.append(POOL, unguarded, "w")).word,
        (await play.store.attempts.emit(attempt, [ev.JobProgress(progress=1)])).word,
        (await play.store.attempts.start(*play.starting(attempt.offer))).word,
        (await play.store.attempts.decline(POOL, play.worker, attempt.offer, "drain")).word,
        (await play.decides(unguarded)).verdicts[0].word,
    ]

    assert words == [Word.GONE] * 5
    assert await play.log_length() == before
    assert [key async for key in play.store.client.scan_iter(f"*:job:{attempt.job_id}")] == []


async def test_a_work_stream_that_was_lost_is_made_again_and_nothing_offered_is_missed(play: Play) -> None:
    """An offer that nobody can read would hold its job until somebody looked at the store by hand."""
    reader = play.store.work(POOL, play.worker)
    await play.store.client.delete(keys.work(POOL, play.worker))

    offer = await play.offers(await play.job())

    messages = [message for _ in range(2) for message in await reader.read(block_ms=100)]
    assert [read_offer((message.fields or {})[b"d"]) for message in messages] == [offer]


async def test_a_work_group_that_was_lost_shows_again_what_is_not_done(play: Play) -> None:
    offer = await play.offers(await play.job())
    await play.store.client.xgroup_destroy(keys.work(POOL, play.worker), keys.GROUP_WORK)

    await play.store.attempts.heartbeat(POOL, play.worker, ())

    reader = play.store.work(POOL, play.worker)
    messages = [message for _ in range(2) for message in await reader.read(block_ms=100)]
    assert [read_offer((message.fields or {})[b"d"]) for message in messages] == [offer]


async def test_what_is_sent_to_a_worker_that_is_gone_leaves_no_stream_behind(play: Play) -> None:
    attempt = await play.running()
    lost = ev.WorkerLost(worker_id=play.worker, silent_ms=1)
    await play.decides(Write(play.worker, (lost,), of_job=False, remove_worker=play.worker))
    cancel = Write(
        attempt.job_id,
        (ev.JobCancelRequested(by="a"),),
        guard=JobGuard(sequence=3),
        work=(WorkEntry(play.worker, "cancel", {"jobId": attempt.job_id, "fence": 1}),),
    )

    assert (await play.store.jobs.append(POOL, cancel, "w")).word is Word.APPLIED

    assert [key async for key in play.store.client.scan_iter(f"*{play.worker}*")] == []


async def test_a_job_whose_key_became_something_else_is_gone_and_takes_nothing_with_it(play: Play) -> None:
    """Field case 32: an error about one key must not end the heartbeat, or the turn, of all the others."""
    broken, sound = await play.running(slot=0), await play.running(slot=1)
    offered = await play.offers(await play.job())
    for job_id in (broken.job_id, offered.job_id):
        await play.store.client.set(keys.job(POOL, job_id), "not a hash")
    await play.store.client.delete(keys.body(POOL, sound.job_id))
    await play.store.client.rpush(keys.body(POOL, sound.job_id), "not a string")

    beat = await play.store.attempts.heartbeat(
        POOL, play.worker, [(each.job_id, each.fence) for each in (broken, sound)]
    )
    assert (beat.word, beat.held) == (Word.APPLIED, ("0", "1"))
    assert (await play.store.attempts.emit(broken, [ev.JobProgress(progress=1)])).word is Word.GONE
    attempt, event = play.starting(offered)
    assert (await play.store.attempts.start(attempt, event)).word is Word.GONE
    assert (await play.store.attempts.decline(POOL, play.worker, offered, "drain")).word is Word.GONE
    cancel = Write(offered.job_id, (ev.JobCancelled(how="queued"),), guard=JobGuard(sequence=2), closes_for=TENANT)
    assert (await play.store.jobs.append(POOL, cancel, "w")).word is Word.GONE
    waiting = await play.job()
    both = [play.offering(job_id, slot=2)[1] for job_id in (offered.job_id, waiting)]
    assert [verdict.word for verdict in (await play.decides(*both)).verdicts] == [Word.GONE, Word.APPLIED]
    assert await play.store.jobs.history(POOL, broken.job_id) is None
    history = await play.store.jobs.history(POOL, sound.job_id, with_body=True)
    assert history is not None
    assert history.body == b""
