"""POST /v1/jobs/{id}/cancel: exact in every state, and harmless to repeat."""

import asyncio

import orjson

from contracts.store import Word, keys
from services.ingest.handlers.cancel import Canceller
from services.ingest.handlers.read import JobReader
from services.ingest.tenancy import Caller
from tests.ingest.api import Api
from tests.store.play import POOL, Play


async def cancel(api: Api, job_id: str) -> tuple[int, str]:
    answer = await api.call("POST", f"/v1/jobs/{job_id}/cancel")
    return answer.status, answer.body.get("code") or answer.body["status"]


async def work_of(api: Api, play: Play) -> list[tuple[bytes, dict[str, object]]]:
    entries = await api.store.client.xrange(keys.work(POOL, play.worker))
    return [(fields[b"kind"], orjson.loads(fields[b"d"])) for _, fields in entries]


async def test_a_waiting_job_is_cancelled_at_once_and_once(api: Api, play: Play) -> None:
    job_id = await api.job()

    assert await cancel(api, job_id) == (200, "cancelled")
    assert await cancel(api, job_id) == (200, "cancelled")
    assert await play.types(job_id) == ["job.created", "job.cancelled"]


async def test_an_offered_job_is_taken_back_from_the_worker(api: Api, play: Play) -> None:
    job_id = await api.job()
    offer = await play.offers(job_id)

    assert await cancel(api, job_id) == (200, "cancelled")

    assert (b"withdraw", {"offerId": offer.offer_id, "jobId": job_id}) in await work_of(api, play)
    assert await api.store.client.hget(keys.worker(POOL, play.worker), "d0") is None


async def test_a_running_job_is_asked_to_stop_once(api: Api, play: Play) -> None:
    attempt, started = play.starting(await play.offers(await api.job()))
    await api.store.attempts.start(attempt, started)

    assert await cancel(api, attempt.job_id) == (202, "in_progress")
    assert await cancel(api, attempt.job_id) == (202, "in_progress")

    orders = [data for kind, data in await work_of(api, play) if kind == b"cancel"]
    assert orders == [{"jobId": attempt.job_id, "fence": 1}]
    assert (await play.types(attempt.job_id)).count("job.cancel_requested") == 1
    shown = await api.get(f"/v1/jobs/{attempt.job_id}")
    assert shown.body["cancelRequestedAt"] is not None


async def test_a_job_that_ended_otherwise_cannot_be_cancelled(api: Api, play: Play) -> None:
    attempt, started = play.starting(await play.offers(await api.job()))
    await api.store.attempts.start(attempt, started)
    await play.completes(attempt)

    assert await cancel(api, attempt.job_id) == (409, "already_terminal")


async def test_many_cancels_at_once_are_one(api: Api, play: Play) -> None:
    job_id = await api.job()

    outcomes = await asyncio.gather(*(cancel(api, job_id) for _ in range(20)))

    assert set(outcomes) == {(200, "cancelled")}
    assert await play.types(job_id) == ["job.created", "job.cancelled"]


async def test_a_subscribed_cancellation_is_marked_for_the_notifier(api: Api) -> None:
    job_id = await api.job(webhookUrl="https://app.example/hook", webhookEvents=["job.cancelled"])

    await cancel(api, job_id)

    history = await api.store.jobs.history(POOL, job_id)
    assert history is not None
    assert [entry.hooked for entry in history.entries] == [False, True]


async def test_a_cancel_decided_on_an_old_state_is_not_applied(api: Api, play: Play) -> None:
    """The job starts between the decision and the write: it must not be called cancelled while it runs."""
    job_id = await api.job()
    reader = JobReader(api.service.context)
    caller = Caller("t_a", "key_x", frozenset())
    shown = await reader.need(caller, job_id)
    decided = await Canceller(api.service.context, reader).decide(shown, caller)
    attempt, started = play.starting(await play.offers(job_id))
    await api.store.attempts.start(attempt, started)

    late = await api.store.jobs.append(POOL, decided, "late")

    assert late.word is Word.CONFLICT
    assert await cancel(api, job_id) == (202, "in_progress")
