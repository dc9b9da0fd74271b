"""Who reads the log and how far: unknown is unknown, and a dead group is found and dropped by name."""

from typing import Any

import pytest

from contracts.store import keys
from tests.ingest.api import Api
from tests.ingest.test_dead_letters import fails
from tests.store.play import Play

LOG = keys.log("default")
PATH = "/admin/v1/consumers"


async def groups(api: Api) -> dict[str, Any]:
    found = (await api.admin("GET", f"{PATH}?pool=default&limit=100")).body["data"]
    return {each["id"].removeprefix("default/log/"): each for each in found}


async def test_a_lag_that_the_store_does_not_know_is_null_and_has_no_series(api: Api, play: Play) -> None:
    """store.md, pitfall 11: after a deletion the lag is unknown, after a trim it counts what is gone."""
    client: Any = api.store.client
    for _ in range(3):
        await api.job()
    before = (await groups(api))["notifier"]
    handed = await client.xreadgroup(keys.GROUP_NOTIFIER, "ntf_1", {LOG: ">"}, count=1)
    entries = [position for position, _ in await client.xrange(LOG)]
    await client.xdel(LOG, entries[2])
    after = (await groups(api))["notifier"]
    text = (await api.get("/metrics")).raw.decode()

    assert (before["lag"], before["pending"], before["active"]) == (len(entries), 0, False)
    assert (after["lag"], after["pending"]) == (None, 1)
    assert after["behindSeconds"] > 0
    assert after["oldestPending"]["id"] == handed[0][1][0][0].decode()
    assert [each["name"] for each in after["members"]] == ["ntf_1"]
    assert 'headrace_log_consumer_lag{group="notifier",pool="default"}' not in text
    assert 'headrace_log_consumer_lag{group="scheduler",pool="large"} 0.0' in text
    assert 'headrace_log_consumer_behind_seconds{group="notifier",pool="default"}' in text
    assert 'headrace_log_consumer_pending{group="notifier",pool="default"} 1.0' in text
    await fails(api, play)
    assert 'headrace_dlq_jobs{pool="default"} 1.0' in (await api.get("/metrics")).raw.decode()


async def test_a_lag_that_counts_what_was_trimmed_away_unread_is_null(api: Api) -> None:
    client: Any = api.store.client
    for _ in range(4):
        await api.job()
    await client.xreadgroup(keys.GROUP_NOTIFIER, "ntf_1", {LOG: ">"}, count=1)
    told = (await client.xinfo_groups(LOG))[0]["lag"]
    await client.xtrim(LOG, maxlen=1, approximate=False)

    raw = {each["name"]: each["lag"] for each in await client.xinfo_groups(LOG)}
    assert raw[b"notifier"] in (told, 3, None)  # the store goes on counting them
    assert (await groups(api))["notifier"]["lag"] is None


async def test_a_group_that_nobody_reads_holds_the_log_and_is_dropped_with_a_reason(api: Api) -> None:
    client: Any = api.store.client
    await api.job()
    await client.xgroup_create(LOG, "old reader", "0-0")
    await client.xgroup_create(LOG, "alive", "0-0")
    await client.xreadgroup("alive", "me", {LOG: ">"}, count=1)
    end = await api.store.end_of_log("default")
    for group in keys.LOG_GROUPS:
        await client.xgroup_setid(LOG, group, end)
    await client.hset(keys.archive("default"), mapping={"upto": end, "until": 1})

    found = await groups(api)
    dead, alive, archive = found["old reader"], found["alive"], found["archivist"]
    assert (dead["holdsLog"], dead["active"], alive["drop"]) == (True, False, None)
    assert dead["drop"] == "headrace consumers drop default 'old reader' --reason '...'"
    assert (archive["lag"], archive["behindSeconds"], archive["lastId"]) == (None, 0, end)
    for group, code in (("alive", "consumer_in_use"), ("notifier", "consumer_in_use"), ("x", "consumer_not_found")):
        assert (await api.admin("DELETE", f"{PATH}/default/{group}?reason=r")).code == code
    assert (await api.admin("DELETE", f"{PATH}/default/old reader")).code == "bad_parameter"

    gone = await api.admin("DELETE", f"{PATH}/default/old reader?reason=Kafka+is+gone")
    forced = await api.admin("DELETE", f"{PATH}/default/alive?reason=stuck&force=true")

    assert (gone.status, forced.status) == (204, 204)
    assert {each["name"] for each in await client.xinfo_groups(LOG)} == {b"scheduler", b"notifier"}
    written = [fields for _, fields in await client.xrange(LOG) if fields[b"t"] == b"consumer.dropped"]
    assert [b"Kafka is gone" in fields[b"d"] for fields in written] == [True, False]


async def test_a_name_that_is_no_text_is_shown_and_hides_nothing_else(api: Api) -> None:
    client: Any = api.store.client
    await api.job()
    await client.xgroup_create(LOG, b"\xff\n", "0-0")
    await client.xreadgroup(b"\xff\n", b"\xfe", {LOG: ">"}, count=1)

    found = (await groups(api))["\\xff\n"]

    assert (found["members"][0]["name"], found["oldestPending"]["member"], found["active"]) == ("\\xfe", "\\xfe", True)
    assert (await api.get("/metrics")).status == 200


@pytest.mark.parametrize("until_ms", [1, 1 << 50])
async def test_the_mirror_which_has_no_members_is_dropped_only_when_nobody_leads_it(api: Api, until_ms: int) -> None:
    client: Any = api.store.client
    await client.xgroup_create(LOG, keys.GROUP_MIRROR, "0-0")
    await client.hset(keys.mirror("default"), "until", until_ms)
    await client.hset(keys.meta("default"), "cursor:mirror", "5-0")

    dropped = await api.admin("DELETE", f"{PATH}/default/mirror?reason=r")

    assert dropped.code == (None if until_ms == 1 else "consumer_in_use")
    left = await client.exists(keys.mirror("default")) + await client.hexists(keys.meta("default"), "cursor:mirror")
    assert left == (0 if until_ms == 1 else 2)
