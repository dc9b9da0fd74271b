"""What was running on a pool at an instant: jobs, workers, pauses and limits, for their tenant and for operators."""

import asyncio
import random
from typing import Any

import orjson
import pytest

from contracts import events as ev
from contracts.store import Store
from contracts.wire import Entry, wire_type
from services.ingest.events import folding
from services.ingest.events.standing import Standing
from tests.archive.rig import Log
from tests.ingest.api import ADMIN_KEY, Api
from tests.ingest.test_events import log, run_job, seal_and_trim
from tests.store.play import POOL, Play

__all__ = ["log"]
SLOTS = (
    ev.SlotInfo(index=0, device="cpu-h-0-0", kind="cpu", bytes=5),
    ev.SlotInfo(index=1, device="d", kind="cpu", bytes=7),
)


async def applied(store: Store, paused: bool) -> None:
    """The leader copies a configuration into its log."""
    event = ev.PolicyApplied(
        position="77-0", weights={"t_a": 2.0, "t_b": 1.0}, tenants={"t_a": ev.TenantRule(concurrency=3)},
        policy=ev.PolicyFacts(lead_s=2.5), paused=paused, paused_models=("edit",),
    )  # fmt: skip
    assert (await store.note(POOL, "policy", event, f"policy {paused}")).applied


async def at(api: Api, position: str, query: str = "", path: str = "/v1/state", **more: Any) -> dict[str, Any]:
    answer = await api.get(f"{path}?at={position}{query}", **more)
    assert answer.status == 200, answer.body
    return dict(answer.body)


async def here(api: Api) -> str:
    return f"aa.1.{await api.store.end_of_log(POOL)}"


async def test_an_instant_shows_jobs_workers_pauses_and_limits(api: Api, play: Play, log: Log) -> None:
    """api.md 2.11: what was running on pool P then? The same after all of it was sealed, trimmed and went on."""
    registered = ev.WorkerChanged(worker_id=play.worker, slots=SLOTS)
    assert (await api.store.note(POOL, play.worker, registered, "slots")).applied
    await applied(api.store, paused=False)
    stranger = await api.tenant("t_b")
    waiting, theirs = await api.job(), (await api.submit(stranger)).body["id"]
    runs = await api.job()
    attempt, started = play.starting(await play.offers(runs, slot=1))
    await api.store.attempts.start(attempt, started)
    then, time = await here(api), (await api.get(f"/v1/jobs/{runs}")).body["startedAt"]
    await applied(api.store, paused=True)
    paused = await here(api)
    await api.store.attempts.emit(attempt, [ev.JobCompleted()], closes=True)
    gone = ev.WorkerLost(worker_id=play.worker, silent_ms=1)
    assert (await api.store.note(POOL, play.worker, gone, "gone")).applied
    shown = await at(api, then, "&scope=pool:default")

    pool = shown["pools"]["default"]
    assert shown["counts"] | {"queued": 1, "in_progress": 1} == shown["counts"]
    row = {"jobId": runs, "pool": "default", "model": "draw@1", "workerId": play.worker, "slot": 1, "startedAt": time}
    assert shown["running"] == [row]
    assert (shown["runningCount"], shown["hasMore"], shown["nextCursor"]) == (1, False, None)
    (worker,) = pool["workers"]
    assert [(slot["device"], slot["bytes"], slot["jobId"]) for slot in worker["slots"]] == [
        ("cpu-h-0-0", 5, None), ("d", 7, runs),
    ]  # fmt: skip
    assert (worker["id"], worker["state"], "host" in worker) == (play.worker, "open", False)
    assert (pool["paused"], pool["pausedModels"], pool["policyPosition"]) == (False, ["edit"], "77-0")
    assert pool["policy"]["leadS"] == 2.5
    assert (pool["limits"]["t_a"]["concurrency"], pool["limits"]["t_a"]["weight"]) == (3, 2.0)
    assert list(pool["limits"]) == ["t_a"]
    foreign = await at(api, then, key=stranger)
    assert (foreign["counts"]["queued"], foreign["running"]) == (1, [])
    assert foreign["pools"]["default"]["workers"][0]["slots"][1]["jobId"] is None
    everything = await at(api, then, path="/admin/v1/state", key=ADMIN_KEY)
    assert everything["counts"]["queued"] == 2
    assert everything["running"] == [row | {"tenantId": "t_a"}]
    assert everything["pools"]["default"]["workers"][0]["host"] == "h"
    assert set(everything["pools"]["default"]["limits"]) == {"t_a", "t_b"}
    assert (await at(api, paused))["pools"]["default"]["paused"] is True
    now = await at(api, await here(api))
    assert (now["pools"]["default"]["workers"], now["running"], now["counts"]["completed"]) == ([], [], 1)
    await seal_and_trim(log)
    assert await at(api, then, "&scope=pool:default") == shown
    assert (await api.get("/admin/v1/state")).code == "missing_scope"
    assert {waiting, theirs} & {each["jobId"] for each in everything["running"]} == set()


async def test_a_job_is_a_scope_of_its_own(api: Api, play: Play) -> None:
    job_id = await run_job(api, play)
    events = (await api.get(f"/v1/jobs/{job_id}/events")).body["data"]
    stranger = await api.tenant("t_b")

    for event in events:
        then = await at(api, event["position"], f"&scope=job:{job_id}")
        assert then["job"] == (await api.get(f"/v1/jobs/{job_id}?at={event['position']}")).body
        assert then["positions"] == {"default": event["position"]}
        assert then["counts"] == {then["job"]["status"]: 1}
    foreign = await api.get(f"/v1/state?scope=job:{job_id}", key=stranger)
    assert (foreign.status, foreign.code) == (404, "job_not_found")
    for scope in ("job:", "job:x", "tenant:t_b"):
        assert (await api.get(f"/v1/state?scope={scope}")).code == "bad_parameter"


async def test_running_jobs_come_in_pages_of_one_instant(api: Api, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ran: none is left out, none told twice, and what began meanwhile is not among them."""
    monkeypatch.setattr(folding, "STEP", 3)
    attempts = []
    for slot in range(5):
        attempt, started = play.starting(await play.offers(await api.job(), slot=slot))
        await api.store.attempts.start(attempt, started)
        attempts.append(attempt)
    ran = sorted(attempt.offer.job_id for attempt in attempts)

    found, cursor = list[str](), ""
    while cursor is not None:
        page = (await api.get(f"/v1/state?limit=2{cursor and '&cursor=' + cursor}")).body
        assert (page["runningCount"], page["hasMore"]) == (5, page["nextCursor"] is not None)
        found += [each["jobId"] for each in page["running"]]
        cursor = page["nextCursor"]
        if attempts:
            await api.store.attempts.emit(attempts.pop(), [ev.JobCompleted()], closes=True)

    assert found == ran
    begun = (await api.get("/v1/state?limit=1")).body
    for more in ("&scope=pool:default", "&at=2030-01-01T00:00:00Z"):
        assert (await api.get(f"/v1/state?limit=1&cursor={begun['nextCursor']}{more}")).code == "bad_cursor"


async def test_a_run_that_begins_again_counts_once(api: Api, play: Play) -> None:
    """What has ended is not kept by the fold: the event of the retry says from what, the store whose it is."""
    job_id = await api.job()
    stranger = await api.tenant("t_b")
    await api.call("POST", f"/v1/jobs/{job_id}/cancel")
    ended = await here(api)
    assert (await api.call("POST", f"/v1/jobs/{job_id}/retry")).status == 202
    again = await here(api)

    for position, status in ((ended, "cancelled"), (again, "queued"), (ended, "cancelled")):
        counts = (await at(api, position))["counts"]
        assert {name: count for name, count in counts.items() if count} == {status: 1}
        assert sum((await at(api, position, key=stranger))["counts"].values()) == 0


def entry(number: int, event: ev.Event, subject: str) -> Entry:
    return Entry(f"{number}-0", wire_type(event), subject, orjson.dumps(orjson.loads(event.to_json())), 1, number)


async def test_who_asks_for_the_past_faster_than_it_is_folded_is_told_to_come_back(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_job(api, play)
    go_on, fold_on = asyncio.Event(), folding._fold_on

    async def slow(*asked: Any) -> None:
        await go_on.wait()
        await fold_on(*asked)

    monkeypatch.setattr(folding, "_fold_on", slow)
    asked = [asyncio.create_task(api.get("/v1/state?scope=pool:default")) for _ in range(folding.MOST_ASKED + 3)]
    refused, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    go_on.set()
    answers = await asyncio.gather(*asked)

    assert refused
    assert sorted(answer.code or "" for answer in answers) == [""] * folding.MOST_ASKED + ["quota_exceeded"] * 3
    assert (await api.get("/v1/state")).status == 200


def test_memory_grows_with_what_is_open_and_not_with_the_log() -> None:
    """More than 200,000 jobs are no reason to refuse: of those that ended only the count stays."""
    standing, number = Standing("t_a"), 0
    for job in range(5_000):
        name = f"job_{job}"
        number += 3
        created = ev.JobCreated(tenant_id="t_a", model="echo@1", timeout_ms=1, body_bytes=2)
        standing.fold(entry(number, created, name))
        standing.fold(entry(number + 1, ev.JobCancelled(how="queued"), name))

    assert (standing.jobs, standing.counts["cancelled"]) == ({}, 5_000)
    assert len(standing.ended) == 1


def test_a_copy_stays_as_it_is() -> None:
    """The fold that is kept for the next question must not move with the one that goes on from it."""
    chance, standing = random.Random(1), Standing(None)
    for number in range(1, 200):
        name = f"job_{chance.randrange(20)}"
        open_ = standing.jobs.get(name)
        facts: list[ev.Event] = [ev.JobCreated(tenant_id="t", model="m@1", timeout_ms=1, body_bytes=2)]
        if open_ is not None:
            facts = [ev.JobStarted(worker_id="w", offer_id="o", slot=0, device="d", attempt=1), ev.JobCompleted()]
        kept = standing.copy()
        before = (dict(kept.jobs), kept.counts, kept.position)
        standing.fold(entry(number, facts[0 if open_ is None or open_.worker_id is None else 1], name))
        assert (kept.jobs, kept.counts, kept.position) == before
        assert standing.position == f"{number}-0"
