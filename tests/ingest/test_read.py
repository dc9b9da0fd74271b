"""Reading jobs: what is shown is a fold, and nobody sees what is not theirs."""

import statistics
import time
from datetime import datetime

import orjson
import pytest

from contracts import events as ev
from contracts.ids import mint_job_id
from contracts.store.attempts import Attempt
from tests.ingest.api import Api
from tests.store.play import Play

VOLATILE = ("queue", "urls", "expiresAt")
ARTIFACT = ev.ArtifactRef(
    id="art_1", kind="image", variant="original", mime="image/png", bytes=3, sha256="0" * 64,
    path="/v1/artifacts/art_1/content", expires_at_ms=1_964_457_200_000, width=1, height=1,
)  # fmt: skip
THUMBNAIL = ARTIFACT.model_copy(update={"id": "art_2", "variant": "thumbnail", "path": "/v1/artifacts/art_2/content"})


async def start(api: Api, play: Play, job_id: str) -> Attempt:
    attempt, started = play.starting(await play.offers(job_id))
    await api.store.attempts.start(attempt, started)
    return attempt


async def test_unknown_foreign_malformed_and_forgotten_ids_get_the_same_answer(api: Api) -> None:
    """Field case 4: an unknown job never has a status, and a foreign one is not told from it."""
    job_id = await api.job()
    stranger = await api.tenant("t_b")
    unknown = mint_job_id(1_764_457_200_000, 7, "aa")

    bodies = []
    for path in (job_id, unknown, mint_job_id(1, 1, "zz"), "job_x", "..%2f..%2fetc"):
        for suffix in ("", "/events", "/result", "/artifacts", "?sequence=1"):
            answer = await api.get(f"/v1/jobs/{path}{suffix}", key=stranger)
            bodies.append({k: v for k, v in answer.body.items() if k not in ("instance", "requestId")})
        answer = await api.call("POST", f"/v1/jobs/{path}/cancel", key=stranger)
        bodies.append({k: v for k, v in answer.body.items() if k not in ("instance", "requestId")})

    assert all(body == bodies[0] for body in bodies)
    assert bodies[0]["code"] == "job_not_found"
    assert (await api.get(f"/v1/jobs/{job_id}")).body["status"] == "queued"


async def test_a_foreign_id_takes_as_long_as_an_unknown_one(api: Api) -> None:
    """Field case 4: not by timing either."""
    foreign = await api.job(prompt="x" * 1_000)
    stranger = await api.tenant("t_b")
    unknown = mint_job_id(1_764_457_200_000, 7, "aa")
    ratios: list[float] = []
    for _ in range(12):  # a real difference is in every one; a busy machine makes some
        ratios.append(await _time_ratio(api, stranger, foreign, unknown))
        if abs(ratios[-1] - 1) < 0.1:
            return
    raise AssertionError(ratios)


async def _time_ratio(api: Api, key: str, first: str, second: str) -> float:
    """Return how much longer `first` takes, by the medians of requests in turn."""
    times: dict[str, list[float]] = {first: [], second: []}
    for _ in range(60):
        for job_id, spent in times.items():
            started_s = time.perf_counter()
            await api.get(f"/v1/jobs/{job_id}", key=key)
            spent.append(time.perf_counter() - started_s)
    return statistics.median(times[first]) / statistics.median(times[second])


async def test_every_stage_of_a_job_can_be_shown_again_as_it_was(api: Api, play: Play) -> None:
    job_id = await api.job()
    shown = {}

    async def keep() -> None:
        answer = await api.get(f"/v1/jobs/{job_id}")
        shown[answer.body["sequence"]] = answer.body

    await keep()
    offer = await play.offers(job_id)
    await keep()
    attempt, started = play.starting(offer)
    await api.store.attempts.start(attempt, started)
    await keep()
    await api.store.attempts.emit(attempt, [ev.JobProgress(progress=40, step=4, total_steps=10, phase="denoising")])
    await keep()
    timings = ev.Timings(queued_ms=1, run_ms=2, gpu_seconds=0.002)
    completed = ev.JobCompleted(artifacts=(THUMBNAIL, ARTIFACT), timings=timings)
    await api.store.attempts.emit(attempt, [completed], line=b'\n{"result":{"seed":7}}', closes=True)
    await keep()

    assert list(shown) == [1, 2, 3, 4, 5]
    for sequence, before in shown.items():
        again = await api.get(f"/v1/jobs/{job_id}?sequence={sequence}")
        assert again.headers["etag"] == f'"{sequence}"'
        for body in (before, again.body):
            for name in VOLATILE:
                body.pop(name)
        assert again.body == before
    assert shown[2]["assignment"] == {"workerId": play.worker, "slot": 0}
    assert (shown[4]["progress"], shown[4]["phase"], shown[4]["totalSteps"]) == (40, "denoising", 10)
    assert shown[5]["resultUrl"] == "https://gen.example/v1/artifacts/art_1/content"
    assert shown[5]["timings"]["gpuSeconds"] == 0.002


async def test_a_completed_job_says_how_long_it_stood_in_line_now_and_later(api: Api, play: Play) -> None:
    job_id = await api.job()
    attempt = await start(api, play, job_id)
    assert (await api.get(f"/v1/jobs/{job_id}")).body["timings"]["queuedMs"] is None
    await api.store.attempts.emit(attempt, [ev.JobCompleted(timings=ev.Timings(run_ms=2))], closes=True)

    job = (await api.get(f"/v1/jobs/{job_id}")).body
    again = (await api.get(f"/v1/jobs/{job_id}?sequence={job['sequence']}")).body

    created, started = (datetime.fromisoformat(job[name]) for name in ("createdAt", "startedAt"))
    assert job["timings"]["queuedMs"] == round((started - created).total_seconds() * 1000)
    assert again["timings"] == job["timings"]


@pytest.mark.parametrize("sequence", ["0", "2", "x", "-1", "1e3", "9" * 30])
async def test_a_sequence_that_is_not_there_is_400(api: Api, sequence: str) -> None:
    answer = await api.get(f"/v1/jobs/{await api.job()}?sequence={sequence}")

    assert (answer.status, answer.code) == (400, "bad_parameter")


async def test_an_unchanged_job_is_304(api: Api) -> None:
    job_id = await api.job()

    same = await api.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": '"1"'})
    await api.call("POST", f"/v1/jobs/{job_id}/cancel")
    changed = await api.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": '"1"'})

    assert (same.status, same.raw) == (304, b"")
    assert (changed.status, changed.headers["etag"]) == (200, '"2"')


async def test_the_result_is_202_then_200_and_409_when_there_is_none(api: Api, play: Play) -> None:
    first, second = await api.job(), await api.job()
    assert (await api.get(f"/v1/jobs/{first}/result")).status == 202

    attempt = await start(api, play, first)
    done = ev.JobCompleted(artifacts=(ARTIFACT,))
    await api.store.attempts.emit(attempt, [done], line=b'\n{"result":{"words":["leek"]}}', closes=True)
    await api.call("POST", f"/v1/jobs/{second}/cancel")

    answer = await api.get(f"/v1/jobs/{first}/result")
    assert (answer.status, answer.body["result"]) == (200, {"words": ["leek"]})
    assert answer.body["artifacts"][0]["url"] == "https://gen.example/v1/artifacts/art_1/content"
    none = await api.get(f"/v1/jobs/{second}/result")
    assert (none.status, none.code) == (409, "job_failed")


async def test_a_failed_job_says_how_with_the_authors_words(api: Api, play: Play) -> None:
    job_id = await api.job()
    attempt = await start(api, play, job_id)
    error = ev.ErrorFacts(code="child_exited", exit_code=3, phase="denoising")
    line = b"\n" + orjson.dumps({"error": {"code": "child_exited", "message": "boom", "attempt": 1}})
    ends = [ev.JobAttemptFailed(error=error, attempt=1, will_retry=False), ev.JobFailed(error=error, attempts=1)]
    await api.store.attempts.emit(attempt, ends, line=line, closes=True)

    shown = (await api.get(f"/v1/jobs/{job_id}")).body

    assert shown["status"] == "failed"
    assert shown["error"] == {
        "code": "child_exited", "message": "boom", "retryable": False, "attempt": 1, "phase": "denoising",
        "exitCode": 3, "signal": None, "requestedBytes": None, "freeBytes": None, "reservedBytes": None,
    }  # fmt: skip


async def test_events_come_in_order_page_by_page(api: Api, play: Play) -> None:
    job_id = await api.job()
    attempt = await start(api, play, job_id)
    for step in range(1, 6):
        await api.store.attempts.emit(attempt, [ev.JobProgress(progress=step * 10, step=step)])
    await api.store.attempts.emit(attempt, [ev.ThumbnailReady(artifact=THUMBNAIL)])

    pages = [await api.get(f"/v1/jobs/{job_id}/events?limit=3")]
    while pages[-1].body["hasMore"]:
        link = pages[-1].headers["link"].partition("<")[2].partition(">")[0]
        pages.append(await api.get(link))

    events = [event for page in pages for event in page.body["data"]]
    assert [event["sequence"] for event in events] == list(range(1, 10))
    assert [event["source"] for event in events[:4]] == ["ingest", "scheduler", *[f"worker/{play.worker}"] * 2]
    assert events[-1]["data"]["artifact"]["url"] == "https://gen.example/v1/artifacts/art_2/content"
    assert events[2]["id"] == f"evt_{job_id[4:]}_3"
    foreign_cursor = pages[0].body["nextCursor"]
    other = await api.job()
    refused = await api.get(f"/v1/jobs/{other}/events?cursor={foreign_cursor}")
    assert (refused.status, refused.code) == (400, "bad_cursor")


async def test_artifacts_of_a_running_job_are_those_of_its_attempt(api: Api, play: Play) -> None:
    job_id = await api.job()
    attempt = await start(api, play, job_id)
    await api.store.attempts.emit(attempt, [ev.ThumbnailReady(artifact=THUMBNAIL)])
    await api.store.attempts.emit(attempt, [ev.ArtifactUploaded(artifact=ARTIFACT, ms=1)])

    listed = (await api.get(f"/v1/jobs/{job_id}/artifacts")).body["data"]
    originals = (await api.get(f"/v1/jobs/{job_id}/artifacts?variant=original")).body["data"]

    assert [each["id"] for each in listed] == ["art_2", "art_1"]
    assert [each["id"] for each in originals] == ["art_1"]


async def test_jobs_are_listed_newest_first_and_pages_do_not_shift(api: Api) -> None:
    made = [await api.job(pool="large" if n % 2 else "default") for n in range(7)]

    first = await api.get("/v1/jobs?limit=3")
    await api.job()
    rest = await api.get(f"/v1/jobs?limit=10&cursor={first.body['nextCursor']}")

    ids = [job["id"] for page in (first, rest) for job in page.body["data"]]
    assert ids == made[::-1]
    assert rest.body["hasMore"] is False


async def test_a_page_of_huge_jobs_is_shorter_and_goes_on(api: Api) -> None:
    for _ in range(8):
        await api.job(model="echo", pool="default", input={"text": "x" * 900_000})

    first = await api.get("/v1/jobs")
    second = await api.get(f"/v1/jobs?cursor={first.body['nextCursor']}")

    assert (len(first.body["data"]), len(second.body["data"])) == (5, 3)
    assert (first.body["hasMore"], second.body["hasMore"]) == (True, False)


async def test_filters_narrow_the_list(api: Api, play: Play) -> None:
    plain = await api.job()
    urgent = await api.job(priority="urgent", userId="u_7", metadata={"cart": "9"})
    other = await api.job(model="echo", pool="default")
    ended = await api.job()
    await api.call("POST", f"/v1/jobs/{ended}/cancel")
    created_at = (await api.get(f"/v1/jobs/{plain}")).body["createdAt"]

    async def ids(query: str) -> list[str]:
        answer = await api.get(f"/v1/jobs?{query}")
        assert answer.status == 200, answer.body
        return sorted(job["id"] for job in answer.body["data"])

    assert await ids("status=canceled") == [ended]
    assert await ids("status=queued&status=cancelled") == sorted([plain, urgent, other, ended])
    assert await ids("priority=urgent") == [urgent]
    assert await ids("userId=u_7") == [urgent]
    assert await ids("metadata.cart=9") == [urgent]
    assert await ids("metadata.cart=8") == []
    assert await ids("model=echo") == [other]
    assert await ids("model=draw@1&status=queued") == sorted([plain, urgent])
    assert await ids("pool=large") == []
    assert await ids(f"q={plain[:20]}&limit=100") != []
    assert await ids(f"createdAfter={created_at}") == sorted([plain, urgent, other, ended])
    assert await ids(f"createdBefore={created_at}") == []
    assert await ids("deadLettered=true") == []


@pytest.mark.parametrize(
    "query",
    ["status=done", "stat=queued", "limit=0", "limit=101", "limit=x", "createdAfter=yesterday", "q=evt_1",
     "priority=9", "priority=low&priority=high", "createdAfter=2026-11-29T23:00:00"],
)  # fmt: skip
async def test_a_filter_that_makes_no_sense_is_400(api: Api, query: str) -> None:
    answer = await api.get(f"/v1/jobs?{query}")

    assert (answer.status, answer.code) == (400, "bad_parameter")


async def test_a_cursor_works_for_its_own_filters_and_tenant_only(api: Api) -> None:
    for _ in range(3):
        await api.job()
    cursor = (await api.get("/v1/jobs?limit=1&status=queued")).body["nextCursor"]
    other = await api.tenant("t_b")

    assert (await api.get(f"/v1/jobs?limit=1&status=queued&cursor={cursor}")).status == 200
    for query, key in (("limit=1", api.key), ("limit=1&status=queued", other)):
        refused = await api.get(f"/v1/jobs?{query}&cursor={cursor}", key=key)
        assert (refused.status, refused.code) == (400, "bad_cursor")


async def test_a_list_shows_only_the_tenants_own_jobs(api: Api) -> None:
    await api.job()
    other = await api.tenant("t_b")

    assert (await api.get("/v1/jobs", key=other)).body["data"] == []
