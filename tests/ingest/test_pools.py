"""Pools, their policies, and pauses: every change is one event with who and why."""

from typing import Any

import orjson
import pytest

from contracts.store import Store, keys
from tests.ingest.api import Api
from tests.store.play import Play

POLICY = "/admin/v1/scheduler/policy"


async def said(store: Store, kind: str) -> list[dict[str, Any]]:
    """Return the data of all events of one type in the configuration log."""
    entries = await store.client.xrange(keys.log(keys.SYSTEM))
    return [orjson.loads(fields[b"d"]) for _, fields in entries if fields[b"t"] == kind.encode()]


async def test_the_policy_in_force_is_the_settings_until_it_is_changed(api: Api) -> None:
    shown = (await api.admin("GET", POLICY)).body

    assert (shown["pool"], shown["leadSeconds"], shown["bypassSeconds"], shown["hold"]) == ("default", 90, 300, True)
    assert shown["tierWeights"] == {"enterprise": 8, "standard": 3, "free": 1}
    assert shown["tierFloors"] == {"enterprise": 0.7, "free": 0.05}
    assert shown["changed"] == []


async def test_a_change_of_policy_is_an_event_with_author_and_reason(api: Api) -> None:
    body = {"leadSeconds": 20, "tierWeights": {"free": 2}, "reason": "calmer"}

    changed = await api.admin("PATCH", POLICY, json=body)
    again = await api.admin("PATCH", POLICY, json=body | {"reason": "once more"})

    assert changed.status == 200
    assert (changed.body["leadSeconds"], changed.body["bypassSeconds"]) == (20, 300)
    assert changed.body["tierWeights"] == {"enterprise": 8, "standard": 3, "free": 2}
    assert changed.body["changed"] == ["tierWeights", "leadSeconds"]
    assert again.body == changed.body == (await api.admin("GET", POLICY)).body
    (event,) = await said(api.store, "policy.changed")
    assert (event["pool"], event["by"], event["reason"]) == ("default", "operator", "calmer")
    assert event["policy"]["leadS"] == 20
    assert event["previous"] == {}


async def test_null_goes_back_to_the_setting(api: Api) -> None:
    await api.admin("PATCH", POLICY, json={"leadSeconds": 20, "hold": False})

    back = await api.admin("PATCH", POLICY, json={"leadSeconds": None})

    assert (back.body["leadSeconds"], back.body["hold"], back.body["changed"]) == (90, False, ["hold"])


async def test_each_pool_has_its_own_policy(api: Api) -> None:
    await api.admin("PATCH", POLICY + "?pool=large", json={"bypassSeconds": 7})

    assert (await api.admin("GET", POLICY + "?pool=large")).body["bypassSeconds"] == 7
    assert (await api.admin("GET", POLICY)).body["bypassSeconds"] == 300
    for method, more in (("GET", {}), ("PATCH", {"json": {}})):
        missing = await api.admin(method, POLICY + "?pool=none", **more)
        assert (missing.status, missing.code) == (404, "pool_not_found")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"tierWeights": {"free": -1}}, "/tierWeights/free"),
        ({"tierWeights": {"free": 0}}, "/tierWeights/free"),
        ({"tierWeights": {"gold": 1}}, "/tierWeights/gold"),
        ({"tierFloors": {"free": 0.9}}, "/tierFloors/free"),
        ({"tierFloors": {"free": 0.2}}, "/tierFloors"),  # with 0.7 for enterprise, which is not named
        ({"leadSeconds": -1}, "/leadSeconds"),
        ({"lead_seconds": 86_401}, "/lead_seconds"),
        ({"hold": 1}, "/hold"),
        ({"bypassSeconds": "300"}, "/bypassSeconds"),
        ({"speed": 1}, "/speed"),
    ],
)
async def test_what_is_out_of_bounds_is_refused_where_it_stands(api: Api, body: Any, pointer: str) -> None:
    refused = await api.admin("PATCH", POLICY, json=body)

    assert (refused.status, refused.pointers) == (422, [pointer])
    assert await said(api.store, "policy.changed") == []


async def test_pools_show_what_they_serve_and_hold(api: Api, play: Play) -> None:
    await api.job()

    listed = await api.admin("GET", "/admin/v1/pools")
    (default, large) = listed.body["data"]
    first = await api.admin("GET", "/admin/v1/pools?limit=1")

    assert (default["name"], default["models"], default["workers"]) == ("default", ["draw@1", "echo@1", "edit@1"], 1)
    assert default["use"]["queuedJobs"] == 1
    assert default["use"]["queuedBytes"] > 0
    assert (large["models"], large["workers"], large["use"]["queuedJobs"]) == (["draw@1"], 0, 0)
    assert (await api.admin("GET", "/admin/v1/pools/large")).body == large
    assert (first.body["data"], first.body["hasMore"]) == ([default], True)
    assert (await api.admin("GET", "/admin/v1/pools/none")).code == "pool_not_found"


@pytest.mark.parametrize(
    ("path", "shown_at", "event"),
    [
        ("pools/large", "/admin/v1/pools/large", "pool"),
        ("tenants/t_a", "/admin/v1/tenants/t_a", "tenant"),
        ("models/draw", "/v1/models/draw", "model"),
    ],
)
async def test_what_is_paused_is_shown_so_until_it_is_resumed(
    api: Api, path: str, shown_at: str, event: str
) -> None:  # fmt: skip
    key = {} if shown_at.startswith("/v1") else {"key": "sk_test_admin_0123456789"}
    assert (await api.get(shown_at, **key)).body["paused"] is False

    paused = await api.admin("POST", f"/admin/v1/{path}/pause", json={"reason": "maintenance"})
    twice = await api.admin("POST", f"/admin/v1/{path}/pause", json={})
    assert paused.body["paused"] is twice.body["paused"] is (await api.get(shown_at, **key)).body["paused"] is True

    resumed = await api.admin("POST", f"/admin/v1/{path}/resume", json={})
    assert resumed.body["paused"] is (await api.get(shown_at, **key)).body["paused"] is False
    (done,) = await said(api.store, f"{event}.paused")
    assert (done["by"], done["reason"]) == ("operator", "maintenance")
    assert len(await said(api.store, f"{event}.resumed")) == 1


async def test_a_paused_name_pauses_its_versions(api: Api) -> None:
    await api.admin("POST", "/admin/v1/models/draw@1/pause", json={})
    assert (await api.get("/v1/models/draw")).body["paused"] is True
    await api.admin("POST", "/admin/v1/models/draw/pause", json={})

    still = await api.admin("POST", "/admin/v1/models/draw@1/resume", json={})

    assert (still.body["paused"], still.body["pausedAs"]) == (True, ["draw"])
    assert (await api.admin("POST", "/admin/v1/models/draw/resume", json={})).body["pausedAs"] == []


@pytest.mark.parametrize("path", ["pools/none", "tenants/t_none", "models/none", "models/draw@9"])
async def test_what_is_not_there_cannot_be_paused(api: Api, path: str) -> None:
    for verb in ("pause", "resume"):
        assert (await api.admin("POST", f"/admin/v1/{path}/{verb}", json={})).status == 404


async def test_a_paused_tenant_may_still_submit(api: Api) -> None:
    await api.admin("POST", "/admin/v1/tenants/t_a/pause", json={})

    await api.job()
