"""Audits through the API: asked for, done by a process of their own, one at a time, and shown to whom they concern."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from contracts.archive.checkpoints import SECRET, SUBJECT, Signer
from contracts.asked_audit import AskedAudit
from contracts.store import keys
from services.ingest.audits.views import audit_view
from services.ingest.audits.worker import AuditWorker, ended_audit
from services.ingest.context import Context
from tests.ingest.api import ADMIN_KEY, Answer, Api
from tests.scheduler.rig import Worker, candidate

AUDIT = "/v1/audit/verify"


@pytest.fixture
async def auditor(api: Api, monkeypatch: pytest.MonkeyPatch) -> str:
    """Key of tenant t_a that may ask for audits; who does them reads what the process was started with."""
    settings = api.service.context.settings
    monkeypatch.setenv("HEADRACE_REDIS__URL", settings.redis.url)
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(settings.data_dir))
    return await api.new_key("t_a", ["audit:read", "jobs:read"])


async def ended(api: Api, asked: Answer, key: str) -> Any:
    """Wait until an audit is done; nothing announces it."""
    assert asked.status == 202, asked.body
    async with asyncio.timeout(60):
        while True:
            shown = await api.call("GET", asked.headers["location"], key=key)
            assert shown.status == 200, shown.body
            if shown.body["status"] != "running":
                return shown.body
            await asyncio.sleep(0.05)


async def test_an_audit_names_what_differs_and_a_repair_makes_it_anew(api: Api, auditor: str) -> None:
    """The same document as the command line's; what came of it is in the log, with who asked and why."""
    job_id, other = await api.job(), await api.job()
    stranger = await api.tenant("t_b", ["audit:read"])
    await api.store.client.hset(keys.job("default", job_id), "pr", "high")

    asked = await api.call("POST", AUDIT, key=auditor, json={"jobId": job_id})
    second = await api.admin("POST", AUDIT)
    unseen = await api.call("GET", asked.headers["location"], key=stranger)
    found = await ended(api, asked, auditor)
    await api.service.context.readiness.run_once(api.service._probe)
    text = (await api.get("/metrics")).raw.decode()
    repair = await api.admin("POST", "/v1/audit/repair", json={"reason": "a foreign hand"})
    repaired = await ended(api, repair, ADMIN_KEY)

    assert "headrace_audit_verify_ok{" not in text  # of one job: the pool was never audited as a whole
    assert (second.status, second.code, unseen.code) == (409, "audit_under_way", "audit_not_found")
    assert (found["ok"], found["chainOk"], found["error"], found["tenantId"], found["events"]) == (
        False, None, None, "t_a", 1
    )  # fmt: skip
    (jobs,) = [each for each in found["pools"][0]["projections"] if each["name"] == "jobs"]
    assert (jobs["rows"], jobs["differing"], jobs["sample"][0][: len(job_id)]) == (1, 1, job_id)
    assert other not in str(found)
    assert (repaired["ok"], repaired["chainOk"], repaired["pools"][0]["repair"]["rebuilt"]) == (True, True, {"jobs": 1})
    told = await api.admin("GET", "/admin/v1/events?type=audit.*,projection.*")
    assert [each["type"] for each in told.body["data"]].count("projection.rebuilt") == 1
    assert "a foreign hand" in str(told.body)


@pytest.mark.parametrize("is_damaged", [False, True], ids=["lost", "lost and damaged"])
async def test_after_a_job_was_set_aside_readiness_turns_green(
    api: Api, auditor: str, store_url: str, is_damaged: bool
) -> None:
    """By the repair alone; where the job's own events are damaged, too, by the one command that the repair names."""
    job_id, store = await api.job(), api.store
    client: Any = store.client
    if is_damaged:
        last = await client.hget(keys.job("default", job_id), "p")
        entry = {"t": "job.metadata_changed", "j": job_id, "n": 2, "f": 0, "p": last, "d": "{not"}
        await client.xadd(keys.log("default"), entry)
    await client.delete(keys.job("default", job_id))
    async with candidate(store_url), (await Worker(store, models=("draw",)).register()).beating() as worker:
        await ready(api, 503)
        why = (await api.get("/readyz", key="")).body["reason"]
        asked = await api.admin("POST", "/v1/audit/repair", json={"reason": "a hash is lost"})
        found = (await ended(api, asked, ADMIN_KEY))["pools"]
        left = [each["what"] for pool in found for each in pool["repair"]["left"] if each["row"] == job_id]
        if is_damaged:
            assert f"`headrace jobs cancel {job_id}`" in left[0]
            assert (await api.call("POST", f"/v1/jobs/{job_id}/cancel")).status in (200, 202)
        else:
            assert (left, await worker.run_next()) == ([], job_id)
        await ready(api, 200)

    assert why.startswith("scheduler_mismatch")
    text = (await api.get("/metrics")).raw.decode()
    assert f'headrace_audit_verify_ok{{pool="default"}} {float(not is_damaged)}' in text
    assert 'headrace_audit_verify_timestamp_seconds{pool="default"} 1' in text
    assert 'headrace_audit_verify_ok{pool="large"} 1.0' in text


async def ready(api: Api, status: int) -> None:
    """Wait for it, in turns as the service takes them, but faster."""
    async with asyncio.timeout(60):
        while (await api.get("/readyz", key="")).status != status:
            await api.service.context.readiness.run_once(api.service._probe)


async def test_a_tenant_audits_its_own_jobs_and_repairs_nothing(api: Api, auditor: str) -> None:
    stranger = await api.job(key=await api.tenant("t_b"))

    answers = [
        await api.call("POST", AUDIT, key=auditor, json={"tenantId": "t_b"}),
        await api.call("POST", AUDIT, key=auditor, json={"jobId": stranger}),
        await api.call("POST", AUDIT, key=auditor, json={"pool": "nowhere"}),
        await api.call("POST", AUDIT, key=auditor, json={"after": "yesterday"}),
        await api.call("POST", "/v1/audit/repair", key=auditor, json={"reason": "r"}),
        await api.admin("POST", "/v1/audit/repair", json={"reason": ""}),
        await api.call("POST", AUDIT),
    ]

    assert [(each.status, each.code) for each in answers] == [
        (404, "tenant_not_found"), (404, "job_not_found"), (404, "pool_not_found"), (422, "invalid_input"),
        (403, "missing_scope"), (422, "invalid_input"), (403, "missing_scope"),
    ]  # fmt: skip


async def test_checkpoints_are_listed_by_page_with_what_they_are_worth(api: Api, auditor: str) -> None:

    seed = await api.store.directory.keep_secret(SECRET, "07" * 32)
    for number, signer in enumerate((Signer(bytes.fromhex(seed)), Signer(bytes(32)))):
        event = signer.sign("default", 1, f"{number + 1}-0", number, "ab" * 32)
        await api.store.note("default", SUBJECT, event, f"c{number}")
        damaged = {"t": event.TYPE, "j": SUBJECT, "n": "0", "d": '{"position":7}'}
        await api.store.client.xadd(keys.log("default"), damaged)  # no page ends at one that cannot be read

    first = await api.get("/v1/audit/checkpoints?limit=1", key=auditor)
    second = await api.get(f"/v1/audit/checkpoints?limit=1&cursor={first.body['nextCursor']}", key=auditor)
    rest = await api.get(f"/v1/audit/checkpoints?cursor={second.body['nextCursor']}", key=auditor)
    foreign = await api.get(f"/v1/audit/checkpoints?pool=large&cursor={first.body['nextCursor']}", key=auditor)

    assert [each["genuine"] for page in (first, second) for each in page.body["data"]] == [True, False]
    assert (rest.body["data"], rest.body["hasMore"], foreign.code) == ([], False, "bad_cursor")


async def test_an_audit_whose_process_died_is_begun_anew_before_any_other(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process took it and is gone: its lease runs out. The one after it waits for that."""
    done: list[str] = []

    async def work(self: AuditWorker, asked: AskedAudit, stop: asyncio.Event) -> AskedAudit:
        done.append(asked.id)
        return replace(asked, done_ms=1)

    monkeypatch.setattr(AuditWorker, "_done", work)
    store = api.store
    old = AskedAudit("aud_old", by="key_x", asked_ms=1)
    await store.audit_work.ask(keys.SYSTEM, old)
    assert await store.audit_work.claim(keys.SYSTEM, "gone", 1_500) == old
    await store.audit_work.ask(keys.SYSTEM, AskedAudit("aud_new", by="key_x", asked_ms=2))

    async with asyncio.timeout(60):
        while len(done) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    assert done == ["aud_old", "aud_new"]


def test_an_audit_that_could_not_run_says_why() -> None:
    """The last words of the program, out of the frame that a usage error is printed in."""
    asked = AskedAudit("aud_x", asked_ms=1)
    framed = "Usage: headrace audit\n\u256d\u2500 Error \u256e\n\u2502 there is no pool x \u2502\n\u2570\u2500\u256f"

    wrong = ended_audit(asked, b"", framed.encode(), 2, 5)
    killed = ended_audit(asked, b'{"pools": []', b"", -9, 5)
    shown = audit_view(wrong)

    assert (wrong.error, wrong.done_ms, killed.error) == ("there is no pool x", 5, "it ended with -9")
    assert (shown["status"], shown["ok"], shown["pools"]) == ("failed", None, [])


async def test_what_nobody_expected_of_one_audit_ends_no_worker() -> None:
    stop, looked = asyncio.Event(), list[int]()

    class Surprised(AuditWorker):
        async def _next(self, stop: asyncio.Event) -> None:
            looked.append(len(looked))
            if len(looked) == 1:
                raise ValueError("nobody expected this")
            stop.set()

    async with asyncio.timeout(10):
        await Surprised(cast(Context, SimpleNamespace(now_ms=lambda: 1))).run(stop)

    assert looked == [0, 1]
