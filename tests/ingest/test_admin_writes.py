"""Every write of the administration has a reason and is an event that says who did it, from where and with what."""

from typing import Any

import pytest

from contracts import events as ev
from contracts.events import CATALOGUE, Acted
from contracts.store import keys
from services.ingest.app import ROUTES
from services.ingest.events import scan
from services.ingest.events.actions import ACTIONS
from tests.ingest.api import ADMIN_KEY, Api
from tests.ingest.test_deliveries import Sent
from tests.ingest.test_event_export import (
    test_an_import_shows_what_was_exported_and_tells_nobody as _an_import_is_told,
)
from tests.ingest.test_usage import archive
from tests.ingest.webhooks import hooks_of
from tests.store.play import Play

Body = dict[str, Any]
AGENT = "auditor/1 (test)"
#: (method, path) -> what its path is filled with, and its body without the reason. A new route is missing here, and
#: the test says so: tell how it is called, so that it is seen to leave its trace.
WRITES: dict[tuple[str, str], Body] = {
    ("POST", "/admin/v1/tenants"): {"id": "t_new"},
    ("PATCH", "/admin/v1/tenants/{tenant}"): {"weight": 2.0},
    ("POST", "/admin/v1/tenants/{tenant}/keys"): {"scopes": ["jobs:read"]},
    ("DELETE", "/admin/v1/tenants/{tenant}/keys/{key}"): {},
    ("POST", "/admin/v1/tenants/{tenant}/pause"): {},
    ("POST", "/admin/v1/tenants/{tenant}/resume"): {},
    ("POST", "/admin/v1/tenants/{tenant}/webhook-secret/rotate"): {},
    ("POST", "/admin/v1/models/{model}/pause"): {},
    ("POST", "/admin/v1/models/{model}/resume"): {},
    ("POST", "/admin/v1/pools/{pool}/pause"): {},
    ("POST", "/admin/v1/pools/{pool}/resume"): {},
    ("PATCH", "/admin/v1/scheduler/policy"): {"leadSeconds": 21},
    ("PATCH", "/admin/v1/retention"): {"failedSeconds": 21.0},
    ("POST", "/admin/v1/workers/{worker}/load-model"): {"model": "draw"},
    ("POST", "/admin/v1/workers/{worker}/evict-model"): {"model": "draw"},
    ("POST", "/admin/v1/workers/{worker}/drain"): {},
    ("POST", "/admin/v1/workers/{worker}/undrain"): {},
    ("POST", "/admin/v1/webhook-deliveries/redeliver"): {"filter": {}},
    ("DELETE", "/admin/v1/consumers/{pool}/{group}"): {},
    ("DELETE", "/admin/v1/jobs/{job}"): {},
    ("POST", "/admin/v1/jobs/erase"): {"tenantId": "t_a", "userId": "u_erased"},
    ("POST", "/admin/v1/dlq/discard"): {"filter": {}},
    ("POST", "/admin/v1/dlq/redrive"): {"filter": {}},
    ("POST", "/admin/v1/dlq/operations/{id}/stop"): {},  # of the one before
    ("POST", "/v1/audit/repair"): {"pool": "default"},
}
#: What it takes a whole test to call.
ELSEWHERE = {("POST", "/admin/v1/events/import"): _an_import_is_told}


def admin_writes(api: Api) -> set[tuple[str, str]]:
    return {(each.method, each.path) for each in api.service.app[ROUTES] if each.scope == "admin" and is_write(each)}


def is_write(route: Any) -> bool:
    return route.method not in ("GET", "HEAD")


async def prepare(api: Api, play: Play) -> dict[str, str]:
    """Make all that the calls are about."""
    made = await api.admin("POST", "/admin/v1/tenants/t_a/keys", json={"scopes": ["jobs:read"]})
    hooks = await hooks_of(api)
    sent = Sent(hooks, await hooks.endpoint())
    await sent.plan()
    await sent.attempt(500, dead=True)
    await api.store.client.xgroup_create(keys.log("default"), "stray", "0")
    ended = await api.job()
    await api.call("POST", f"/v1/jobs/{ended}/cancel")
    return {
        "tenant": "t_a", "key": made.body["id"], "model": "draw", "pool": "default", "worker": play.worker,
        "group": "stray", "job": ended,
    }  # fmt: skip


async def test_every_admin_write_says_who_why_and_from_where(api: Api, play: Play) -> None:
    assert admin_writes(api) == WRITES.keys() | ELSEWHERE.keys(), "say in WRITES how the new routes are called"
    filled = await prepare(api, play)

    for number, ((method, template), body) in enumerate(WRITES.items()):
        if template.endswith("/undrain"):
            draining = ev.WorkerDraining(worker_id=play.worker)
            await api.store.attempts.announce("default", play.worker, draining, "drains", state="draining")
        reason = f"because {number}"
        path, more = template.format(**filled), {"json": body | {"reason": reason}}
        if method == "DELETE":
            path, more = f"{path}?reason=because+{number}", {}
        answer = await api.admin(method, path, headers={"User-Agent": AGENT}, **more)
        assert answer.status < 300, (template, answer.body)
        filled["id"] = answer.body["id"] if "/dlq/redrive" in path else ""

    listed = await pages(api, "order=asc")
    by_reason = {each["reason"]: each for each in listed}
    for number, write in enumerate(WRITES):
        action = by_reason.get(f"because {number}")
        assert action is not None, f"{write} left no event with its reason"
        assert (action["actor"], action["ip"], action["userAgent"]) == ("operator", "127.0.0.1", AGENT), write


async def pages(api: Api, query: str = "", key: str = ADMIN_KEY, limit: int = 7) -> list[Any]:
    found, cursor = list[Any](), ""
    while True:
        page = await api.get(f"/v1/audit/actions?limit={limit}&{query}{cursor}", key=key)
        assert page.status == 200, page.body
        found += page.body["data"]
        if not page.body["hasMore"]:
            return found
        cursor = f"&cursor={page.body['nextCursor']}"


def test_what_an_operator_does_is_an_event_that_can_say_all_of_it() -> None:
    assert {"tenant.created", "key.revoked", "worker.commanded", "webhook.redelivery_requested"} <= set(ACTIONS)
    for name in ACTIONS:
        model = CATALOGUE[name]
        assert issubclass(model, Acted)
        assert {"by", "reason", "ip", "user_agent"} <= model.model_fields.keys(), name
    admins = {name for name, model in CATALOGUE.items() if (model.__doc__ or "").startswith("admin:")}
    # What becomes of each of many jobs is told of the job; who asked for all of it, once.
    assert {name for name in admins if not name.startswith("job.")} <= set(ACTIONS)


async def test_actions_are_listed_by_actor_type_time_and_tenant(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over live log and archive, of the configuration and of each pool; no digest of a key is among it."""
    auditor = await api.new_key("t_a", ["audit:read"])
    await api.tenant("t_b")
    await api.admin("POST", "/admin/v1/tenants/t_b/pause", json={"reason": "unpaid"})
    await api.admin("POST", f"/admin/v1/workers/{play.worker}/drain", json={"reason": "a new driver"})
    everything = await pages(api)
    assert [each["type"] for each in everything[:2]] == ["worker.commanded", "tenant.paused"]
    assert everything[0]["data"] == {"workerId": play.worker, "command": "drain"}
    told = str(everything)
    assert not any(secret in told for secret in ("sha256", api.key, ADMIN_KEY, auditor, *api.secrets.values()))
    assert [each["time"] for each in everything] == sorted((each["time"] for each in everything), reverse=True)
    assert await pages(api, "order=asc") == everything[::-1]

    types = "type=key.created,tenant.paused"
    assert {each["type"] for each in await pages(api, types)} == {"key.created", "tenant.paused"}
    assert await pages(api, "actor=somebody") == []
    assert await pages(api, "actor=operator") == everything
    assert [each["reason"] for each in await pages(api, "tenantId=t_b&type=tenant.paused")] == ["unpaid"]
    assert await pages(api, f"to={everything[-1]['time']}") == []
    mine = await pages(api, key=auditor)
    assert mine == [each for each in everything if each["tenantId"] == "t_a"] != []
    assert await pages(api, "tenantId=t_b", key=auditor) == mine
    operator = await api.new_key("t_a", ["audit:read", "admin"])
    newest, *rest = await pages(api, key=operator)
    assert (newest["type"], rest) == ("key.created", everything)

    monkeypatch.setattr(scan, "STEP", 2)
    monkeypatch.setattr(scan, "MAX_SCANNED", 2)
    await archive(api)
    assert await pages(api, limit=3) == [newest, *everything]
    for wrong in ("type=job.created", "actor=a&order=up", "from=now", "colour=red", "cursor=x"):
        assert (await api.get(f"/v1/audit/actions?{wrong}", key=ADMIN_KEY)).status == 400, wrong
    assert (await api.get("/v1/audit/actions")).code == "missing_scope"
