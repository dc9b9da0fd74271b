"""Admission: once for an id, within limits, counted exactly; and the claims of Idempotency-Keys."""

import asyncio

import pytest

from contracts import events as ev
from contracts.store import Word, keys
from contracts.store.jobs import Limits
from contracts.store.replies import KeyClaim, Submits
from contracts.store.write import JobGuard, Write
from tests.store.play import POOL, TENANT, Play


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(tenant_jobs=2), "tenant_jobs"),
        (Limits(pool_jobs=2), "pool_jobs"),
        (Limits(tenant_bytes=25), "tenant_bytes"),
        (Limits(pool_bytes=25), "pool_bytes"),
    ],
)
async def test_exactly_the_limit_is_admitted_and_a_refusal_writes_nothing(
    play: Play, limits: Limits, name: str
) -> None:
    """Field case 5: the limit holds under concurrent requests, and a refused one leaves no event."""
    answers = await asyncio.gather(*(play.admits(b"x" * 10, limits=limits) for _ in range(20)))

    refused = [answer for answer in answers if answer.word is Word.REFUSED]
    assert len(refused) == 18
    assert {answer.limit for answer in refused} == {name}
    assert await play.log_length() == 1 + 2  # the worker, two jobs
    assert len(await play.store.jobs.page(POOL, TENANT)) == 2


async def test_the_limit_of_one_tenant_does_not_touch_another(play: Play) -> None:
    limits = Limits(tenant_jobs=1, tenant_bytes=100)

    answers = [await play.admits(tenant=tenant, limits=limits) for tenant in ("t_a", "t_a", "t_b")]

    assert [answer.word for answer in answers] == [Word.APPLIED, Word.REFUSED, Word.APPLIED]


async def test_room_is_given_back_by_every_way_a_job_can_end(play: Play) -> None:
    """Field case 16: a slot of a limit does not leak, whoever ends the job."""
    completed, failed = await play.running(0, b"x" * 10), await play.running(1, b"x" * 10)
    cancelled, expired = await play.job(b"x" * 10), await play.job(b"x" * 10)
    assert await usage(play) == {"jobs": 4, "bytes": 40, f"b:{TENANT}": 40}

    await play.completes(completed)
    error = ev.ErrorFacts(code="internal")
    ended = [ev.JobAttemptFailed(error=error, attempt=1, will_retry=False), ev.JobFailed(error=error, attempts=1)]
    await play.store.attempts.emit(failed, ended, closes=True)
    cancel = Write(cancelled, (ev.JobCancelled(how="queued"),), guard=JobGuard(sequence=1), closes_for=TENANT)
    await play.store.jobs.append(POOL, cancel, "w")
    late = ev.JobExpired(start_by_at_ms=1, waited_ms=1)
    await play.decides(Write(expired, (late,), guard=JobGuard(states=("queued",)), closes_for=TENANT))

    assert await usage(play) == {}
    assert await play.store.jobs.page(POOL, TENANT, closed=False) == []


async def test_a_new_run_counts_again(play: Play) -> None:
    job_id = await play.job(b"x" * 10)
    cancel = Write(job_id, (ev.JobCancelled(how="queued"),), guard=JobGuard(sequence=1), closes_for=TENANT)
    await play.store.jobs.append(POOL, cancel, "w1")
    again = ev.JobRetried(by="a", from_status="cancelled", run=2, max_attempts=3)

    await play.store.jobs.append(POOL, Write(job_id, (again,), guard=JobGuard(sequence=2), opens_for=TENANT), "w2")

    assert await usage(play) == {"jobs": 1, "bytes": 10, f"b:{TENANT}": 10}


async def usage(play: Play) -> dict[str, int]:
    raw = await play.store.client.hgetall(keys.usage(POOL))  # type: ignore[misc]
    return {name.decode(): int(count) for name, count in raw.items() if int(count)}


async def test_an_id_that_was_admitted_is_applied_before_any_limit_is_looked_at(play: Play) -> None:
    """Field case 3: the repeat of a request whose answer was lost must not be told that the queue is full."""
    job_id = await play.job()
    none_left = Limits(tenant_jobs=0, pool_jobs=0)

    again = await play.store.jobs.admit(POOL, play.created(job_id), b"other", TENANT, none_left)

    assert (again.word, again.state, again.sequence) == (Word.APPLIED, "repeat", 1)
    history = await play.store.jobs.history(POOL, job_id, with_body=True)
    assert history is not None
    assert history.body == b"{}"


async def test_a_late_repeat_after_the_job_was_forgotten_creates_nothing(play: Play) -> None:
    """Field case 9 (5): the key outlives the job, and never makes a hidden duplicate."""
    attempt = await play.running()
    await play.completes(attempt)
    await play.decides(
        Write(attempt.job_id, (), guard=JobGuard(states=("completed",)), forget=(TENANT, 60))
    )  # fmt: skip
    before = await play.log_length()

    again = await play.store.jobs.admit(POOL, play.created(attempt.job_id), b"{}", TENANT, Limits())

    assert (again.word, again.state) == (Word.APPLIED, "forgotten")
    assert await play.log_length() == before
    assert await play.store.jobs.history(POOL, attempt.job_id) is None
    assert [key async for key in play.store.client.scan_iter(f"*:body:{attempt.job_id}")] == []
    assert await play.store.client.ttl(keys.admitted(POOL, attempt.job_id)) > 0


async def test_an_id_marked_refused_is_never_admitted_and_an_admitted_one_never_refused(play: Play) -> None:
    refused, admitted = play.mints(), await play.job()

    assert (await play.store.jobs.refuse(POOL, refused, 60)).word is Word.APPLIED
    assert (await play.store.jobs.refuse(POOL, admitted, 60)).word is Word.CONFLICT

    late = await play.store.jobs.admit(POOL, play.created(refused), b"{}", TENANT, Limits())
    assert (late.word, late.state) == (Word.GONE, "refused-before")


async def test_of_many_requests_with_one_key_all_learn_the_same_id(play: Play) -> None:
    """Field case 9: same key, same body: one job, whoever comes first."""
    claims = play.store.claims
    minted = [play.mints() for _ in range(10)]

    answers = await asyncio.gather(*(claims.claim(TENANT, "k", "print", job_id, POOL, 60) for job_id in minted))

    assert {answer.word for answer in answers} == {Word.APPLIED}
    assert len({answer.job_id for answer in answers}) == 1
    assert sorted(answer.state for answer in answers) == ["new"] + ["pending"] * 9


async def test_a_key_with_another_body_or_pool_is_a_conflict(play: Play) -> None:
    """Field case 9 (4); a change of the pool during a retry must not double the job."""
    claims = play.store.claims
    await claims.claim(TENANT, "k", "print", play.mints(), POOL, 60)

    assert (await claims.claim(TENANT, "k", "other", play.mints(), POOL, 60)).word is Word.CONFLICT
    assert (await claims.claim(TENANT, "k", "print", play.mints(), "elsewhere", 60)).word is Word.CONFLICT


async def test_two_tenants_with_one_key_have_two_claims(play: Play) -> None:
    """Field case 10."""
    claims = play.store.claims
    first = await claims.claim("t_a", "k", "print", play.mints(), POOL, 60)
    second = await claims.claim("t_b", "k", "print", play.mints(), POOL, 60)

    assert first.job_id != second.job_id
    assert (first.state, second.state) == ("new", "new")


async def test_a_claim_that_is_done_is_not_dropped_and_a_pending_one_can_be(play: Play) -> None:
    claims = play.store.claims
    done, pending = play.mints(), play.mints()
    await claims.claim(TENANT, "done", "print", done, POOL, 60)
    await claims.done(TENANT, "done", done, "queued")
    await claims.claim(TENANT, "pending", "print", pending, POOL, 60)

    await claims.drop(TENANT, "done", done)
    await claims.drop(TENANT, "pending", play.mints())  # another's id: not its to drop

    assert (await claims.claim(TENANT, "done", "print", play.mints(), POOL, 60)).state == "queued"
    assert (await claims.claim(TENANT, "pending", "print", play.mints(), POOL, 60)).job_id == pending
    await claims.drop(TENANT, "pending", pending)
    assert (await claims.claim(TENANT, "pending", "print", play.mints(), POOL, 60)).state == "new"
    assert await play.store.client.ttl(keys.claim(TENANT, "done")) > 0


async def test_a_tenant_submits_two_minutes_worth_at_once_and_then_at_its_rate(play: Play) -> None:
    """Field case 25: the bucket is the tenant's own."""
    take = play.store.claims.take_submit

    burst = [await take(TENANT, 60, now_ms=1_000) for _ in range(121)]
    other = await take("t_b", 60, now_ms=1_000)
    soon = [await take(TENANT, 60, now_ms=at) for at in (1_999, 2_000, 2_001)]
    rested = await take(TENANT, 60, now_ms=1_000_000)

    assert [each.left for each in burst] == [*range(119, -1, -1), 0]
    assert [each.wait_ms for each in burst] == [0] * 120 + [1_000]
    assert (other.left, other.wait_ms) == (119, 0)
    assert [(each.left, each.wait_ms) for each in soon] == [(0, 1), (0, 0), (0, 999)]
    assert rested.left == 119
    assert 0 < await play.store.client.pttl(keys.submits(TENANT)) <= 120_000


async def test_a_tenant_announces_a_days_worth_and_then_evenly(play: Play) -> None:
    take = play.store.claims.take_upload
    day_ms = 86_400_000

    first = [await take(TENANT, mib, 96, now_ms=1_000) for mib in (90, 6, 1)]
    other = await take("t_b", 96, 96, now_ms=1_000)
    soon = [await take(TENANT, 2, 96, now_ms=1_000 + at) for at in (day_ms // 96, day_ms // 48, day_ms // 48)]

    assert first == [0, 0, day_ms // 96]
    assert other == 0
    assert soon == [day_ms // 96, 0, day_ms // 48]
    assert await take(TENANT, 96, 96, now_ms=10 * day_ms) == 0  # after a rest no more than a day's worth
    assert await take(TENANT, 1, 96, now_ms=10 * day_ms) > 0
    assert 0 < await play.store.client.pttl(keys.uploads(TENANT)) <= day_ms
    assert [await take("t_c", 100_000_000, 100_000_000, now_ms=at) for at in (1, 1)] == [0, day_ms]


async def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing(play: Play) -> None:
    take = play.store.claims.take_submit
    await take(TENANT, 60, now_ms=50_000)

    assert (await take(TENANT, 60, now_ms=10_000)).left == 118


async def test_a_new_key_costs_a_submit_and_a_repeat_none(play: Play) -> None:
    claim = play.store.claims.claim

    async def claims(name: str) -> KeyClaim:
        return await claim(TENANT, name, "print", play.mints(), POOL, 60, 1, now_ms=1_000)

    first, repeat, second, third = [await claims(name) for name in ("a", "a", "b", "c")]
    still = await claims("b")
    mismatch = await claim(TENANT, "a", "other", play.mints(), POOL, 60, 1, now_ms=1_000)

    assert [each.state for each in (first, repeat, second, still)] == ["new", "pending", "new", "pending"]
    assert [each.submits for each in (first, repeat, second, still)] == [Submits(1), Submits(1), Submits(0), Submits(0)]
    assert (third.word, third.submits) == (Word.REFUSED, Submits(0, 60_000))
    assert mismatch.word is Word.CONFLICT
    assert await play.store.client.exists(keys.claim(TENANT, "c")) == 0
