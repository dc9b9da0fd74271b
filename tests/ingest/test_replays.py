"""Replays: the past once more, as fast as wanted, for its tenant alone, and without a trace."""

import asyncio
from typing import Any

import orjson
import pytest

from contracts.positions import entry_ms, parse_position
from services.ingest.events.replaying import Pace
from tests.archive.rig import Log
from tests.ingest.api import Api
from tests.ingest.test_events import log, pages, run_job, seal_and_trim
from tests.store.play import Play

__all__ = ["log"]


async def replay(api: Api, body: dict[str, Any] | None = None, after: str = "") -> list[tuple[str, str, Any]]:
    """Return name, id and data of everything a replay says."""
    made = await api.call("POST", "/v1/replays", json={"speed": "max"} | (body or {}))
    assert made.status == 201, made.body
    assert (await api.get(made.body["urls"]["self"])).body == made.body
    text = (await api.get(made.body["urls"]["stream"], headers={"Last-Event-ID": after} if after else None)).raw
    found = []
    for block in text.decode().split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.splitlines())
        if "data" in fields:
            found.append((fields["event"], fields.get("id", ""), orjson.loads(fields["data"])))
    return found


async def test_a_replay_shows_what_the_log_and_its_archive_hold(api: Api, play: Play, log: Log) -> None:
    for _ in range(3):
        await run_job(api, play)
    listed = await pages(api, "/v1/events", limit=500)
    await seal_and_trim(log, 6)

    told = await replay(api)
    failures = await replay(api, {"filters": {"type": "job.completed"}})

    assert [data for _, _, data in told[:-1]] == listed
    assert told[-1] == ("end", "", {"reason": "done", "count": len(listed)})
    assert [data for _, _, data in failures[:-1]] == [each for each in listed if each["type"] == "job.completed"]
    assert [told[3][1]] == [listed[3]["position"]]
    assert await replay(api, after=told[3][1]) == [*told[4:-1], ("end", "", {"reason": "done", "count": len(told) - 5})]


async def test_a_replay_is_its_tenants_alone(api: Api, play: Play) -> None:
    await run_job(api, play)
    made = (await api.call("POST", "/v1/replays", json={})).body
    stranger = await api.tenant("t_b")

    for path in made["urls"].values():
        assert (await api.get(path, key=stranger)).code == "replay_not_found"
        assert (await api.get(path, key=await api.new_key("t_a", ["jobs:read"]))).code == "missing_scope"
    assert (await api.get("/v1/replays/rpl_x")).code == "replay_not_found"


@pytest.mark.parametrize(
    "body", [{"speed": 0}, {"speed": 101}, {"speed": "fast"}, {"mode": "project"}, {"filters": {"tenantId": "t_b"}}]
)
async def test_what_cannot_be_replayed_is_refused(api: Api, body: dict[str, Any]) -> None:
    assert (await api.call("POST", "/v1/replays", json=body)).status == 422


async def test_a_replay_writes_nothing_so_that_it_makes_no_work_and_no_webhook(api: Api, play: Play) -> None:
    """Field case 79: replaying sends no webhooks and starts no jobs.

    The store holds the same bytes under the same keys after it, deliveries and groups among them.
    """
    hooked = {"webhookUrl": "https://app.example/hook"}
    await run_job(api, play, **hooked)
    await api.job(**hooked)
    before = await _everything(api)
    told = await replay(api)

    assert len(told) > 5
    assert await _everything(api) == before


async def _everything(api: Api) -> dict[bytes, bytes | None]:
    """Return every key of the store and what it holds."""
    found = {}
    async for key in api.store.client.scan_iter():
        found[key] = await api.store.client.dump(key)
    return found


def test_events_come_as_far_apart_as_they_were_divided_by_the_speed() -> None:
    pace = Pace(20, 50.0)
    waits = [pace.wait_s(entry_ms(parse_position(f"aa.1.{ms}-0").entry), 50.0) for ms in (1_000, 3_000, 11_000)]

    assert waits == [0, 0.1, 0.5]
    assert Pace(0, 0.0).wait_s(10**12, 0.0) == 0


async def test_a_replay_keeps_its_pace(api: Api, play: Play) -> None:
    for _ in range(4):
        await run_job(api, play)
    begun = asyncio.get_running_loop().time()

    told = await replay(api, {"speed": 2})

    first, last = (entry_ms(parse_position(told[at][2]["position"]).entry) for at in (0, -2))
    assert asyncio.get_running_loop().time() - begun >= (last - first) / 2 / 1000
