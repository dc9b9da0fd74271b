"""Tenants, keys and workers: configuration as events, keys as digests."""

import asyncio
from typing import Any

import orjson
import pytest

from contracts import events as ev
from contracts.store import keys
from tests.ingest.api import ADMIN_KEY, Api
from tests.store.play import Play


async def test_a_tenant_is_created_once_and_changed_in_parts(api: Api) -> None:
    body = {"id": "t_acme", "tier": "enterprise", "weight": 2, "limits": {"queuedJobs": 5}, "reason": "signed"}

    made = await api.admin("POST", "/admin/v1/tenants", json=body)
    twice = await api.admin("POST", "/admin/v1/tenants", json=body)
    changed = await api.admin("PATCH", "/admin/v1/tenants/t_acme", json={"limits": {"queuedBytes": 9}})

    assert (made.status, made.body["tier"]) == (201, "enterprise")
    assert made.body["webhookSecret"].startswith("whsec_")
    assert (twice.status, twice.code) == (409, "already_exists")
    unset = dict.fromkeys(("concurrency", "userConcurrency", "submitsPerMinute", "gpuSecondsPerDay"))
    assert changed.body["limits"] == {"queuedJobs": 5, "queuedBytes": 9} | unset
    assert changed.body["weight"] == 2
    shown = await api.admin("GET", "/admin/v1/tenants/t_acme")
    assert shown.body == changed.body
    assert "webhookSecret" not in shown.body
    assert (await api.admin("GET", "/admin/v1/tenants/t_none")).status == 404
    assert (await api.admin("PATCH", "/admin/v1/tenants/t_none", json={})).status == 404


async def test_every_limit_and_a_fraction_of_a_weight_are_kept_and_taken_back(api: Api) -> None:
    limits = {"concurrency": 2, "userConcurrency": 1, "submitsPerMinute": 600, "gpuSecondsPerDay": 7_200}

    changed = await api.admin("PATCH", "/admin/v1/tenants/t_a", json={"limits": limits, "weight": 0.5})
    back = await api.admin("PATCH", "/admin/v1/tenants/t_a", json={"limits": {"concurrency": None}})

    assert changed.body["weight"] == back.body["weight"] == 0.5
    assert changed.body["limits"] == limits | {"queuedJobs": None, "queuedBytes": None}
    assert back.body["limits"] == changed.body["limits"] | {"concurrency": None}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"weight": -1}, "/weight"),
        ({"weight": 0}, "/weight"),
        ({"weight": 1_000.5}, "/weight"),
        ({"tier": "gold"}, "/tier"),
        ({"limits": {"concurrency": 0}}, "/limits/concurrency"),
        ({"limits": {"submitsPerMinute": 1.5}}, "/limits/submitsPerMinute"),
        ({"limits": {"gpu_seconds_per_day": -1}}, "/limits/gpu_seconds_per_day"),
    ],
)
async def test_a_weight_or_limit_out_of_bounds_is_refused_where_it_stands(api: Api, body: Any, pointer: str) -> None:
    refused = await api.admin("PATCH", "/admin/v1/tenants/t_a", json=body)

    assert (refused.status, refused.pointers) == (422, [pointer])


async def test_two_at_once_create_one_tenant(api: Api) -> None:
    answers = await asyncio.gather(*(api.admin("POST", "/admin/v1/tenants", json={"id": "t_race"}) for _ in range(5)))

    assert sorted(answer.status for answer in answers) == [201, 409, 409, 409, 409]
    winner = next(answer for answer in answers if answer.status == 201)
    assert await api.store.directory.secret("webhook:t_race") == winner.body["webhookSecret"]


async def test_tenants_are_listed_page_by_page(api: Api) -> None:
    for name in ("t_c", "t_b"):
        await api.tenant(name)

    first = await api.admin("GET", "/admin/v1/tenants?limit=2")
    second = await api.admin("GET", f"/admin/v1/tenants?limit=2&cursor={first.body['nextCursor']}")

    assert [each["id"] for page in (first, second) for each in page.body["data"]] == ["t_a", "t_b", "t_c"]


async def test_a_key_is_shown_once_and_kept_as_a_digest(api: Api) -> None:
    made = await api.admin("POST", "/admin/v1/tenants/t_a/keys", json={"scopes": ["jobs:read"], "reason": "ci"})
    key, key_id = made.body["key"], made.body["id"]

    shown = await api.admin("GET", f"/admin/v1/tenants/t_a/keys/{key_id}")
    listed = await api.admin("GET", "/admin/v1/tenants/t_a/keys")

    assert "key" not in shown.body
    assert key_id in [each["id"] for each in listed.body["data"]]
    assert not any("key" in each for each in listed.body["data"])
    secret = key.split("_", 3)[3].encode()
    for name in await api.store.client.keys("*"):
        assert secret not in await api.store.client.dump(name)


async def test_a_revoked_key_stops_working_at_once(api: Api) -> None:
    made = await api.admin("POST", "/admin/v1/tenants/t_a/keys", json={"scopes": ["jobs:read"]})
    assert (await api.get("/v1/jobs", key=made.body["key"])).status == 200

    path = f"/admin/v1/tenants/t_a/keys/{made.body['id']}"
    gone = await api.admin("DELETE", path + "?reason=leaked")

    assert gone.status == 204
    assert (await api.get("/v1/jobs", key=made.body["key"])).status == 401
    assert (await api.admin("DELETE", path)).status == 404
    assert (await api.admin("GET", path)).status == 404


async def test_a_key_of_another_tenant_is_not_found_below_this_one(api: Api) -> None:
    await api.tenant("t_b")
    (other,) = (await api.admin("GET", "/admin/v1/tenants/t_b/keys")).body["data"]

    assert (await api.admin("GET", f"/admin/v1/tenants/t_a/keys/{other['id']}")).status == 404
    assert (await api.admin("DELETE", f"/admin/v1/tenants/t_a/keys/{other['id']}")).status == 404


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Basic abc", "Bearer sk_live_x_y", "Bearer " + "k" * 300, "Bearer sk_live__", "Bearer é"],
)
async def test_anything_but_a_key_is_401(api: Api, authorization: str) -> None:
    answer = await api.get("/v1/jobs", key="", headers={"Authorization": authorization})

    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert "Bearer" in answer.headers["www-authenticate"]


async def test_the_right_id_with_a_wrong_secret_is_401(api: Api) -> None:
    wrong = api.key[:-1] + ("a" if api.key[-1] != "a" else "b")

    assert (await api.get("/v1/jobs", key=wrong)).status == 401


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("POST", "/v1/jobs", "jobs:write"),
        ("GET", "/v1/jobs", "jobs:read"),
        ("GET", "/v1/jobs/x/events", "events:read"),
        ("POST", "/v1/jobs/x/cancel", "jobs:write"),
        ("GET", "/v1/models", "models:read"),
        ("GET", "/admin/v1/tenants", "admin"),
        ("GET", "/admin/v1/workers", "admin"),
        ("POST", "/admin/v1/workers/w/drain", "admin"),
        ("PATCH", "/admin/v1/scheduler/policy", "admin"),
        ("POST", "/admin/v1/pools/default/pause", "admin"),
        ("POST", "/admin/v1/models/draw/resume", "admin"),
    ],
)
async def test_each_route_asks_for_its_scope(api: Api, method: str, path: str, needed: str) -> None:
    every = {"jobs:write", "jobs:read", "events:read", "models:read", "admin", "audit:read"}
    key = await api.new_key("t_a", sorted(every - {needed}))

    answer = await api.call(method, path, key=key, **({} if method == "GET" else {"json": {}}))

    assert (answer.status, answer.code, answer.body["scope"]) == (403, "missing_scope", needed)


async def test_the_operators_key_has_no_job_scopes(api: Api) -> None:
    assert (await api.get("/v1/jobs", key=ADMIN_KEY)).status == 403
    assert (await api.submit(ADMIN_KEY)).status == 403


async def test_configuration_is_in_the_log_with_who_and_why(api: Api) -> None:
    await api.admin("POST", "/admin/v1/tenants", json={"id": "t_b", "reason": "new customer"})

    entries = await api.store.client.xrange(keys.log(keys.SYSTEM))

    (created,) = [orjson.loads(f[b"d"]) for _, f in entries if f[b"t"] == b"tenant.created" and f[b"j"] == b"t_b"]
    assert (created["by"], created["reason"]) == ("operator", "new customer")


async def test_workers_are_listed_with_what_they_hold(api: Api, play: Play) -> None:
    devices = [{"uuid": "cpu-h-0-0", "kind": "cpu", "slots": [{"index": 0, "state": "running"}]}]
    await api.store.client.hset(
        keys.worker("default", play.worker), mapping={"pid": "7", "devices": orjson.dumps(devices)}
    )
    attempt, started = play.starting(await play.offers(await api.job()))
    await api.store.attempts.start(attempt, started)
    await api.store.attempts.heartbeat("default", play.worker, [(attempt.job_id, 1)])

    (worker,) = (await api.admin("GET", "/admin/v1/workers")).body["data"]

    assert (worker["id"], worker["host"], worker["pid"], worker["state"]) == (play.worker, "h", 7, "open")
    assert worker["held"] == [{"jobId": attempt.job_id, "fence": 1}]
    assert worker["devices"][0]["slots"][0]["jobId"] == attempt.job_id
    assert worker["lastBeatAt"] is not None
    assert (await api.admin("GET", f"/admin/v1/workers/{play.worker}")).body["id"] == play.worker
    assert (await api.admin("GET", "/admin/v1/workers/wrk_none")).status == 404


async def test_a_worker_that_is_lost_is_not_listed(api: Api, play: Play) -> None:
    await api.store.attempts.announce(
        "default", play.worker, ev.WorkerDrained(worker_id=play.worker), "op1", state="gone"
    )

    assert (await api.admin("GET", "/admin/v1/workers")).body["data"] == []
