"""Many callers in one pipeline, whose replies are lost again and again: every write is in the log once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest

from contracts import events as ev
from contracts.errors import StoreUnavailable
from contracts.store import Store, Word, keys
from contracts.store.jobs import Limits
from contracts.store.write import JobGuard, Write
from tests.servers import Server
from tests.store.lossy import LossyProxy
from tests.store.play import POOL, TENANT, Play

T = TypeVar("T")
JOBS = 60


@pytest.fixture
async def lossy(any_server: Server) -> AsyncIterator[tuple[Play, LossyProxy]]:
    proxy = LossyProxy(any_server.socket)
    await proxy.open()
    store = Store(proxy.url, retries=1)
    await store.directory.open()
    await store.open_pool(POOL)
    yield await Play(store).open(), proxy
    await store.aclose()
    await proxy.close()


async def until_answered(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call unchanged, as its caller must; every call here is safe to repeat."""
    for _ in range(50):
        try:
            return await call()
        except StoreUnavailable:
            continue
    raise AssertionError("no answer in 50 tries")


async def one_life(play: Play, job_id: str, slot: int, turns: asyncio.Lock) -> None:
    """Admit, offer, start, report twice and complete one job, repeating whatever was not answered."""
    jobs, attempts = play.store.jobs, play.store.attempts
    created = play.created(job_id)
    assert (await until_answered(lambda: jobs.admit(POOL, created, b"{}", TENANT, Limits()))).word is Word.APPLIED
    offer, write = play.offering(job_id, slot)
    async with turns:  # turns are numbered: the leader has one in flight
        turn = play.turn([write])
        reply = await until_answered(lambda: play.store.leadership.turn(turn))
    assert [verdict.word for verdict in reply.verdicts] == [Word.APPLIED]
    attempt, event = play.starting(offer)
    assert (await until_answered(lambda: attempts.start(attempt, event))).word is Word.APPLIED
    for events, line, closes in (
        ([ev.JobProgress(progress=10)], b"", False),
        ([ev.LatentsDecoded()], b"", False),
        ([ev.JobDeviceReleased(gpu_ms=1), ev.JobCompleted()], b"\nresult", True),
    ):
        attempt.k += 1
        said = events, line, closes
        answer = await until_answered(lambda said=said: attempts.repeat(attempt, said[0], line=said[1], closes=said[2]))
        assert answer.word is Word.APPLIED


async def test_sixty_jobs_at_once_are_each_written_once_whatever_is_lost(lossy: tuple[Play, LossyProxy]) -> None:
    play, proxy = lossy
    chance, turns = random.Random(7), asyncio.Lock()
    ids = [play.mints() for _ in range(JOBS)]
    proxy.loses = lambda: chance.random() < 0.25

    await asyncio.gather(*(one_life(play, job_id, slot, turns) for slot, job_id in enumerate(ids)))

    proxy.loses = lambda: False
    assert proxy.dropped > 10
    for job_id in ids:
        history = await play.store.jobs.history(POOL, job_id, with_body=True)
        assert history is not None
        assert Counter(entry.type for entry in history.entries) == Counter(
            ["job.created", "job.assigned", "job.started", "job.progress", "latents.decoded", "job.device_released",
             "job.completed"]
        )  # fmt: skip
        assert history.body == b"{}\nresult"
        assert history.folded().sequence == history.state.sequence == 7
    assert len(await play.store.jobs.page(POOL, TENANT, opened=False, limit=JOBS + 1)) == JOBS
    assert await play.store.client.xlen(keys.work(POOL, play.worker)) == JOBS


async def test_a_cancel_whose_reply_is_lost_is_in_the_log_once_though_the_worker_wrote_in_between(
    lossy: tuple[Play, LossyProxy],
) -> None:
    """A job knows its newest write and the three before it, so a repeat is told apart from a conflict."""
    play, proxy = lossy
    attempt = await play.running()
    write = Write(attempt.job_id, (ev.JobCancelRequested(by="a"),), guard=JobGuard(sequence=3))
    proxy.drop = 2  # once for the client, once for its repeat
    with pytest.raises(StoreUnavailable):
        await play.store.jobs.append(POOL, write, "cancel")
    await play.store.attempts.emit(attempt, [ev.JobProgress(progress=50)])

    again = await play.store.jobs.append(POOL, write, "cancel")

    assert again.word is Word.APPLIED
    assert (await play.types(attempt.job_id)).count("job.cancel_requested") == 1


async def test_a_milestone_whose_reply_is_lost_is_in_the_log_once_though_ingest_wrote_in_between(
    lossy: tuple[Play, LossyProxy],
) -> None:
    """The worker's number of its own writes tells a repeat apart, whatever others wrote meanwhile."""
    play, proxy = lossy
    attempt = await play.running()
    proxy.drop = 2
    with pytest.raises(StoreUnavailable):
        await play.store.attempts.emit(attempt, [ev.LatentsDecoded()], line=b"\nx")
    cancel = Write(attempt.job_id, (ev.JobCancelRequested(by="a"),), guard=JobGuard(sequence=4))
    assert (await play.store.jobs.append(POOL, cancel, "cancel")).word is Word.APPLIED

    again = await play.store.attempts.repeat(attempt, [ev.LatentsDecoded()], line=b"\nx")

    history = await play.store.jobs.history(POOL, attempt.job_id, with_body=True)
    assert history is not None
    assert (again.word, history.body) == (Word.APPLIED, b"{}\nx")
    assert [entry.type for entry in history.entries][3:] == ["latents.decoded", "job.cancel_requested"]


async def test_an_accepted_start_whose_reply_is_lost_gives_the_same_fence_and_the_body(
    lossy: tuple[Play, LossyProxy],
) -> None:
    play, proxy = lossy
    attempt, event = play.starting(await play.offers(await play.job(b"body")))
    proxy.drop = 2
    with pytest.raises(StoreUnavailable):
        await play.store.attempts.start(attempt, event)

    again = await play.store.attempts.start(attempt, event)

    assert (again.word, again.body) == (Word.APPLIED, b"body")
    assert (await play.types(attempt.job_id)).count("job.started") == 1
    assert (await play.store.attempts.emit(attempt, [ev.JobProgress(progress=1)])).word is Word.APPLIED
