"""Questions to the leader through the API: answered, batched, and never in the way when nobody answers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from contracts import questions as q
from contracts.store import keys
from contracts.store.questions import Reply, as_batch
from services.ingest.asking import PATIENCE_S, SILENCE_S
from tests.ingest.api import Api

POOL, TOKEN = "default", "token"
PLACE = q.JobPlace(11, 41_260, "because")


class Leader:
    """Leads the pool and answers as it is told."""

    def __init__(self, api: Api, say: Callable[[q.Question], q.Answer | None]) -> None:
        self._store, self._say = api.store, say
        self.batches: list[list[q.Question | None]] = []

    async def open(self) -> None:
        await self._store.leadership.lead(POOL, TOKEN, 60_000)

    async def serve(self) -> None:
        reader = self._store.questions.asked(POOL)
        while True:
            for message in await reader.messages(block_ms=1_000):
                batch = as_batch(message)
                questions = q.read_questions(batch.questions)
                self.batches.append(questions)
                answers = [None if each is None else self._say(each) for each in questions]
                said = [Reply(batch.asker, batch.number, q.write_answers(answers))]
                await self._store.questions.answer(POOL, TOKEN, said)


@asynccontextmanager
async def leading(api: Api, say: Callable[[q.Question], q.Answer | None]) -> AsyncIterator[Leader]:
    leader = Leader(api, say)
    await leader.open()
    task = asyncio.create_task(leader.serve())
    try:
        yield leader
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def by_kind(question: q.Question) -> q.Answer:
    reason = q.Reason("fair_share", "You wait.", 1_764_457_200_000)
    spot = q.Spot("wrk_1", 0, "cpu-h-0-0", "cpu", True, 1_500)
    answers: dict[str, q.Answer] = {
        "place": PLACE,
        "why": q.Explanation(PLACE, (reason,), (spot,)),
        "backlog": q.Backlog(3, 61_000, 2_500, 2, 90_000, {"tenant_concurrency": 1_500}),
        "use": q.TenantUse(2, 1_000, 5),
    }
    return answers[question.kind]


async def test_a_waiting_job_shows_its_place_and_why_it_waits(api: Api) -> None:
    job_id = await api.job()
    async with leading(api, by_kind):
        shown = await api.get(f"/v1/jobs/{job_id}")
        explained = await api.get(f"/v1/jobs/{job_id}/explain")

    place = {"etaSeconds": 41.3, "etaBasis": "because"}
    assert shown.body["queue"] == {"pool": POOL, "position": 12, **place}
    assert shown.body["urls"]["explain"] == f"/v1/jobs/{job_id}/explain"
    assert explained.body == {
        "jobId": job_id,
        "pool": POOL,
        "state": "queued",
        "ahead": 11,
        **place,
        "reasons": [{"code": "fair_share", "detail": "You wait.", "since": "2025-11-29T23:00:00.000Z"}],
        "wouldRunOn": [
            {"workerId": "wrk_1", "slot": 0, "device": "cpu-h-0-0", "kind": "cpu", "warm": True, "freeInSeconds": 1.5}
        ],
    }


async def test_the_leader_is_told_whose_job_it_is_and_a_foreign_one_is_never_asked_about(api: Api) -> None:
    job_id = await api.job()
    stranger = await api.tenant("t_b")
    async with leading(api, by_kind) as leader:
        for path in (f"/v1/jobs/{job_id}/explain", f"/v1/jobs/{job_id}"):
            foreign, unknown = await api.get(path, key=stranger), await api.get(path.replace(job_id, "job_" + "0" * 28))
            assert (foreign.status, foreign.code) == (unknown.status, unknown.code) == (404, "job_not_found")
        assert leader.batches == []
        await api.get(f"/v1/jobs/{job_id}/explain")

    assert leader.batches == [[q.Question("why", job_id, "t_a")]]


async def test_a_job_as_it_was_and_one_that_ended_have_no_place_and_nobody_is_asked(api: Api) -> None:
    job_id = await api.job()
    async with leading(api, by_kind) as leader:
        past = await api.get(f"/v1/jobs/{job_id}?sequence=1")
        await api.call("POST", f"/v1/jobs/{job_id}/cancel")
        ended = await api.get(f"/v1/jobs/{job_id}")
        explained = await api.get(f"/v1/jobs/{job_id}/explain")

    nowhere = {"pool": POOL, "position": None, "etaSeconds": None, "etaBasis": None}
    assert past.body["queue"] == ended.body["queue"] == nowhere
    assert (explained.body["state"], explained.body["reasons"], explained.body["ahead"]) == ("cancelled", [], None)
    assert leader.batches == []


async def test_questions_that_come_together_leave_together(api: Api) -> None:
    job_id = await api.job()
    async with leading(api, by_kind) as leader:
        places = await asyncio.gather(*(api.service.context.asker.place(POOL, "t_a", job_id) for _ in range(100)))

    assert places == [PLACE] * 100
    assert len(leader.batches) <= 10


async def test_without_a_leader_nothing_is_said_at_once_and_the_reason_is_that(api: Api) -> None:
    job_id = await api.job()
    begun = time.monotonic()
    shown = await api.get(f"/v1/jobs/{job_id}")
    explained = await api.get(f"/v1/jobs/{job_id}/explain")
    scaled = await api.admin("GET", "/admin/v1/pools/default/autoscale")

    assert time.monotonic() - begun < PATIENCE_S, "nobody waited for an answer"
    assert shown.body["queue"]["position"] is None
    assert [reason["code"] for reason in explained.body["reasons"]] == ["no_scheduler"]
    assert (scaled.status, scaled.code) == (503, "scheduler_unavailable")


async def test_a_leader_that_says_nothing_delays_one_request_a_little_and_the_next_ones_not_at_all(api: Api) -> None:
    job_id = await api.job()
    await api.store.leadership.lead(POOL, TOKEN, 60_000)
    begun = time.monotonic()
    first = await api.get(f"/v1/jobs/{job_id}")
    first_s = time.monotonic() - begun
    for _ in range(3):
        assert (await api.get(f"/v1/jobs/{job_id}")).body["queue"] == first.body["queue"]
    all_s = time.monotonic() - begun
    asked = await api.store.client.xlen(keys.questions(POOL))

    assert first.status == 200
    assert first.body["queue"]["etaSeconds"] is None
    assert PATIENCE_S <= first_s < SILENCE_S
    assert asked == 1 or all_s - first_s > SILENCE_S
    assert all_s - first_s < 3 * PATIENCE_S, "the next ones did not wait"


async def test_an_answer_that_this_version_cannot_read_is_none(api: Api) -> None:
    async with leading(api, lambda _: None):
        assert await api.service.context.asker.use(POOL, "t_a") is None


async def test_an_autoscaler_hears_what_waits(api: Api) -> None:
    async with leading(api, by_kind) as leader:
        answer = await api.admin("GET", "/admin/v1/pools/default/autoscale?targetSeconds=30")

    assert answer.body == {
        "pool": POOL, "desiredReplicas": 2, "backlogSeconds": 61.0, "backlogJobs": 3, "oldestSeconds": 2.5
    }  # fmt: skip
    assert leader.batches == [[q.Question("backlog", target_ms=30_000)]]
    assert (await api.admin("GET", "/admin/v1/pools/nowhere/autoscale")).code == "pool_not_found"
    assert (await api.admin("GET", "/admin/v1/pools/default/autoscale?targetSeconds=0")).code == "bad_parameter"
    assert (await api.get("/admin/v1/pools/default/autoscale")).code == "missing_scope"


async def test_metrics_say_how_old_the_oldest_is_and_why_slots_stand_idle(api: Api) -> None:
    """Field cases 21 and 24: idle slots with waiting jobs are seen with their reason, and so is the oldest age."""
    async with leading(api, by_kind):
        during = (await api.get("/metrics")).raw.decode()

    assert 'queue_oldest_seconds{pool="large"}' not in during, "where nobody leads nobody knows, which is not 0"
    assert 'headrace_queue_oldest_seconds{pool="default"} 2.5' in during
    assert 'headrace_running_longest_seconds{pool="default"} 90.0' in during
    assert 'headrace_queue_backlog_jobs{pool="default"} 3.0' in during
    assert 'headrace_queue_backlog_seconds{pool="default"} 61.0' in during
    assert 'headrace_idle_slot_seconds_total{pool="default",reason="tenant_concurrency"} 1.5' in during


async def test_a_process_that_stops_with_questions_under_way_does_not_wait_for_them(api: Api) -> None:
    job_id = await api.job()
    await api.store.leadership.lead(POOL, TOKEN, 60_000)
    asked = asyncio.create_task(api.get(f"/v1/jobs/{job_id}"))
    assert await api.store.questions.asked(POOL).messages(block_ms=5_000)
    begun = time.monotonic()
    await api.service.context.asker.aclose()

    assert time.monotonic() - begun < 0.5
    assert (await asked).body["queue"]["position"] is None
