"""How long things are kept is configuration: validated, an event with its reason, shown on jobs at once."""

from datetime import datetime

import orjson

from contracts.store import keys
from tests.ingest.api import Api
from tests.store.play import Play

PATH = "/admin/v1/retention"


async def test_a_change_is_an_event_and_shown_on_jobs_that_have_ended_already(api: Api, play: Play) -> None:
    attempt, started = play.starting(await play.offers(job_id := await api.job()))
    await api.store.attempts.start(attempt, started)
    await play.completes(attempt)

    async def lasts_s() -> float:
        job = (await api.get(f"/v1/jobs/{job_id}")).body
        ended, expires = (datetime.fromisoformat(job[name]) for name in ("completedAt", "expiresAt"))
        return (expires - ended).total_seconds()

    assert await lasts_s() == 3_600
    of_pool = await api.admin("PATCH", f"{PATH}?pool=default", json={"completedSeconds": 60.0, "reason": "small disk"})
    assert await lasts_s() == 60
    of_tenant = await api.admin("PATCH", f"{PATH}?tenantId=t_a", json={"completedSeconds": 90.0, "failedSeconds": 5.0})
    assert await lasts_s() == 90
    assert (of_pool.body["completedSeconds"], of_pool.body["failedSeconds"]) == (60, 86_400)
    assert of_tenant.body["changed"] == ["completedSeconds", "failedSeconds"]
    both = (await api.admin("GET", f"{PATH}?pool=default&tenantId=t_a")).body
    assert (both["completedSeconds"], both["failedSeconds"], len(both["overrides"])) == (90, 5, 2)
    back = await api.admin("PATCH", f"{PATH}?tenantId=t_a", json={"completedSeconds": None})
    assert (back.body["changed"], await lasts_s()) == (["failedSeconds"], 60)
    await api.admin("PATCH", PATH, json={"completedSeconds": 60.0})
    await api.admin("PATCH", PATH, json={"completedSeconds": 60.0})  # as it is: nothing is written

    entries = await api.store.client.xrange(keys.log(keys.SYSTEM))
    events = [orjson.loads(fields[b"d"]) for _, fields in entries if fields[b"t"] == b"retention.changed"]
    assert [(each.get("pool"), each.get("tenantId"), each["reason"]) for each in events] == [
        ("default", None, "small disk"), (None, "t_a", ""), (None, "t_a", ""), (None, None, ""),
    ]  # fmt: skip


async def test_what_makes_no_sense_is_refused(api: Api) -> None:
    for query, body, code in (
        ("", {"completedSeconds": -1.0}, "invalid_input"),
        ("", {"completedSeconds": 1e9}, "invalid_input"),
        ("", {"resultsSeconds": 1.0}, "unknown_field"),
        ("?tenantId=t_a", {"liveSeconds": 1.0}, "invalid_input"),
        ("?tenantId=t_nobody", {"failedSeconds": 1.0}, "tenant_not_found"),
        ("?pool=nowhere", {"failedSeconds": 1.0}, "pool_not_found"),
        ("?pool=default&tenantId=t_a", {"failedSeconds": 1.0}, "bad_parameter"),
        ("?poool=default", {"failedSeconds": 1.0}, "bad_parameter"),
    ):
        assert (await api.admin("PATCH", PATH + query, json=body)).code == code, (query, body)
    assert (await api.get(PATH)).code == "missing_scope"
