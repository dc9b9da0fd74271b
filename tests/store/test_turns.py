"""A turn of the leader: each decision all or nothing, the whole of it once, however often it arrives."""

from contracts import events as ev
from contracts.store import Store, Word, keys
from contracts.store.leadership import build_turn
from contracts.store.write import JobGuard, WorkEntry, WorkerFields, WorkerGuard, Write
from tests.store.play import LEASE_MS, POOL, TENANT, TOKEN, Play


async def test_a_refused_decision_writes_nothing_and_stops_no_other(play: Play) -> None:
    first, second, third = [await play.job() for _ in range(3)]
    before = await play.log_length()

    # the second one wants the deck that the first one has just taken
    reply = await play.decides(*(play.offering(job, slot)[1] for job, slot in ((first, 0), (second, 0), (third, 1))))

    assert [verdict.word for verdict in reply.verdicts] == [Word.APPLIED, Word.REFUSED, Word.APPLIED]
    assert await play.log_length() == before + 2
    assert [await play.types(job) for job in (first, second, third)] == [
        ["job.created", "job.assigned"],
        ["job.created"],
        ["job.created", "job.assigned"],
    ]
    assert await play.store.client.xlen(keys.work(POOL, play.worker)) == 2


async def test_a_guard_on_the_worker_undoes_nothing_because_nothing_was_done(play: Play) -> None:
    """The job's guards hold and the worker's do not: events, hash, list, counters, decks and streams stay."""
    job = await play.job()
    write = Write(
        job,
        (
            ev.JobUnassigned(worker_id=play.worker, offer_id="o", reason="r"),
            ev.JobExpired(start_by_at_ms=1, waited_ms=1),
        ),
        guard=JobGuard(states=("queued",)),
        worker_guard=WorkerGuard(play.worker, heartbeat=99),
        closes_for=TENANT,
        worker_fields=(WorkerFields(play.worker, {"d0": "o"}),),
        work=(WorkEntry(play.worker, "withdraw", {}),),
        remove_worker=play.worker,
        forget=(TENANT, 60),
    )
    before = await everything(play)

    reply = await play.decides(write)

    assert [verdict.word for verdict in reply.verdicts] == [Word.CONFLICT]
    assert await everything(play) == before


async def everything(play: Play) -> dict[bytes, bytes]:
    """Return every key but the leader's own, as bytes."""
    client = play.store.client
    own = (keys.leader(POOL).encode(), keys.meta(POOL).encode(), keys.log(POOL).encode())
    found = {key: await client.dump(key) async for key in client.scan_iter() if key not in own}
    return found | {b"log": str(await client.xrange(keys.log(POOL))).encode()}


async def test_a_turn_that_arrives_twice_answers_the_same_and_writes_once(play: Play) -> None:
    jobs = [await play.job() for _ in range(2)]
    turn = play.turn([play.offering(jobs[0], 0)[1], play.offering(jobs[1], 0)[1], play.offering(jobs[1], 1)[1]])
    first = await play.store.leadership.turn(turn)
    before = await everything(play)

    again = await play.store.leadership.turn(turn)

    assert (again.word, again.verdicts, again.last) == (first.word, first.verdicts, first.last)
    assert [verdict.word for verdict in first.verdicts] == [Word.APPLIED, Word.REFUSED, Word.APPLIED]
    assert await everything(play) == before


async def test_the_answers_name_the_positions_that_were_written(play: Play) -> None:
    jobs = [await play.job() for _ in range(2)]

    reply = await play.decides(play.offering(jobs[0], 0)[1], play.offering(jobs[1], 1)[1])

    log = [position.decode() for position, _ in await play.store.client.xrange(keys.log(POOL))]
    assert [verdict.position for verdict in reply.verdicts] == log[-2:]
    assert reply.last == log[-1]


async def test_a_refusal_names_the_last_position_of_the_job(play: Play) -> None:
    """What the leader has to have folded before it may be surprised (`scheduler.mismatch`)."""
    attempt = await play.running()
    _, late = play.offering(attempt.job_id)

    reply = await play.decides(late)

    assert [verdict.word for verdict in reply.verdicts] == [Word.FENCED]
    history = await play.store.jobs.history(POOL, attempt.job_id)
    assert history is not None
    assert reply.verdicts[0].position == history.state.position


async def test_an_empty_turn_writes_no_event_and_keeps_the_lease(play: Play) -> None:
    before = await play.log_length()
    until = int(await play.store.client.hget(keys.leader(POOL), "until"))  # type: ignore[misc,arg-type]

    reply = await play.decides()

    assert (reply.word, reply.verdicts) == (Word.APPLIED, ())
    assert await play.log_length() == before
    assert int(await play.store.client.hget(keys.leader(POOL), "until")) >= until  # type: ignore[misc,arg-type]


async def test_the_turn_moves_the_visible_cursor_and_makes_a_lost_group_again_there(play: Play) -> None:
    """A group at the beginning would show a day of work as new; one at the end would hide what nobody has read."""
    await play.job()
    position = (await play.decides(play.offering(await play.job())[1])).last
    client, log = play.store.client, keys.log(POOL)

    await play.store.leadership.turn(play.turn((), cursor=position))
    assert await cursor_of(play.store) == position
    await client.xgroup_destroy(log, keys.GROUP_SCHEDULER)
    await play.store.leadership.turn(play.turn((), cursor=position))

    assert await cursor_of(play.store) == position


async def cursor_of(store: Store) -> str:
    groups = await store.client.xinfo_groups(keys.log(POOL))
    by_name = {group["name"].decode(): group for group in groups}
    return str(by_name[keys.GROUP_SCHEDULER]["last-delivered-id"].decode())


async def test_trimming_happens_inside_the_turn_and_only_below_the_position(play: Play) -> None:
    jobs = [await play.job() for _ in range(300)]
    history = await play.store.jobs.history(POOL, jobs[200])
    assert history is not None

    await play.store.leadership.turn(play.turn((), trim_below=history.state.position))

    oldest = (await play.store.client.xrange(keys.log(POOL), count=1))[0][0].decode()
    assert oldest <= history.state.position  # whole nodes only: never above
    assert await play.log_length() < 300


async def test_a_leader_that_stopped_and_woke_writes_nothing(play: Play) -> None:
    """What SIGSTOP does to a leader: it wakes up after its lease and sends the turn it had in hand."""
    job = await play.job()
    leadership = play.store.leadership
    await leadership.resign(POOL, TOKEN)
    assert (await leadership.lead(POOL, "other", LEASE_MS))[0]
    before = await everything(play)

    late = await play.decides(play.offering(job)[1])

    assert late.word is Word.FENCED
    assert await everything(play) == before
    assert not (await leadership.lead(POOL, TOKEN, LEASE_MS))[0]


async def test_the_token_decides_and_not_the_number_or_the_clock(play: Play) -> None:
    """Two candidates that were given the same epoch by two masters still have different tokens."""
    await play.store.client.hset(keys.leader(POOL), mapping={"token": "twin", "turn": "0"})  # type: ignore[misc]
    turn = build_turn(POOL, TOKEN, 1, LEASE_MS, (), cursor="0-0", entries_read=0)

    assert (await play.store.leadership.turn(turn)).word is Word.FENCED


async def test_the_call_that_marks_a_worker_lost_removes_its_stream_group_and_hash(play: Play) -> None:
    """Field case 122: nothing of a worker is left behind, and what it sends later changes nothing."""
    write = Write(
        play.worker,
        (ev.WorkerLost(worker_id=play.worker, silent_ms=1),),
        of_job=False,
        worker_guard=WorkerGuard(play.worker, heartbeat=1),
        remove_worker=play.worker,
    )

    assert [verdict.word for verdict in (await play.decides(write)).verdicts] == [Word.APPLIED]

    left = [key async for key in play.store.client.scan_iter(f"*{play.worker}*")]
    assert left == []
    assert (await play.store.attempts.heartbeat(POOL, play.worker, ())).word is Word.GONE
    late = ev.WorkerDraining(worker_id=play.worker)
    assert (await play.store.attempts.announce(POOL, play.worker, late, "w", "draining")).word is Word.GONE
    offered = await play.decides(play.offering(await play.job())[1])
    assert [verdict.word for verdict in offered.verdicts] == [Word.GONE]
    assert [key async for key in play.store.client.scan_iter(f"*{play.worker}*")] == []


async def test_a_draining_worker_is_offered_nothing(play: Play) -> None:
    event = ev.WorkerDraining(worker_id=play.worker)
    await play.store.attempts.announce(POOL, play.worker, event, "w", "draining")

    reply = await play.decides(play.offering(await play.job())[1])

    assert [verdict.word for verdict in reply.verdicts] == [Word.REFUSED]


async def test_a_worker_that_beat_after_it_was_looked_at_is_not_lost(play: Play) -> None:
    attempt = await play.running()
    seen = (await play.store.attempts.heartbeat(POOL, play.worker, ())).counter
    write = Write(
        attempt.job_id,
        (ev.JobLeaseLost(worker_id=play.worker, attempt=1),),
        guard=JobGuard(fence=1, worker_id=play.worker),
        worker_guard=WorkerGuard(play.worker, heartbeat=seen),
    )
    await play.store.attempts.heartbeat(POOL, play.worker, ())

    reply = await play.decides(write)

    assert [verdict.word for verdict in reply.verdicts] == [Word.CONFLICT]


async def test_where_there_is_an_archive_a_turn_neither_forgets_nor_trims(play: Play) -> None:
    attempt = await play.running()
    await play.completes(attempt)
    end = await play.store.end_of_log(POOL)
    await play.store.archive.lead(POOL, "archivist", 1, "here")
    guard = JobGuard(states=("completed",))
    forget = Write(attempt.job_id, (ev.JobForgotten(),), guard=guard, forget=(TENANT, 60))

    reply = await play.store.leadership.turn(play.turn([forget], trim_below=end))

    assert [(verdict.word, verdict.refused_by) for verdict in reply.verdicts] == [(Word.REFUSED, "archive")]
    assert await play.store.client.exists(keys.job(POOL, attempt.job_id)) == 1
    assert await play.store.client.hget(keys.meta(POOL), "trimmed") is None
    await play.store.client.delete(keys.archive(POOL))
    reply = await play.store.leadership.turn(play.turn([forget], trim_below=end))
    assert [verdict.word for verdict in reply.verdicts] == [Word.APPLIED]
    assert await play.store.client.hget(keys.meta(POOL), "trimmed") == end.encode()
