"""Every question about events, over log and archive alike, against reading all of them and picking."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contracts.archive import START_DIGEST, link
from contracts.positions import entry_key, parse_position
from contracts.store.records import RecordReader
from services.ingest.events import scan
from tests.archive.rig import Log
from tests.ingest.api import ADMIN_KEY, Api
from tests.ingest.test_event_export import export
from tests.ingest.test_events import log, pages, run_job, seal_and_trim
from tests.store.play import Play

__all__ = ["log"]

QUESTIONS = 24
Fits = Callable[[dict[str, Any]], bool]


def place(event: dict[str, Any]) -> tuple[tuple[int, int], str]:
    """Where an event stands among all: pools are merged by time."""
    position = parse_position(event["position"])
    return entry_key(position.entry), position.pool_code


class World:
    """Jobs of two models, two users and two pools, their events, and questions about them."""

    def __init__(self, api: Api, play: Play, log: Log, chance: random.Random) -> None:
        self._api, self._play, self._log, self._chance = api, play, log, chance
        self.jobs: dict[str, dict[str, str]] = {}
        self.events: list[dict[str, Any]] = []

    async def add(self, *, short: bool = False) -> None:
        """One more job."""
        chance = self._chance
        about = {"model": chance.choice(("draw", "echo")), "userId": chance.choice(("u_1", "u_2"))}
        if about["model"] == "draw" and chance.random() < 0.3:
            job_id = await self._api.job(**about, pool="large")
        else:
            job_id = await (self._api.job(**about) if short else run_job(self._api, self._play, **about))
        self.jobs[job_id] = about
        self.events += (await self._api.get(f"/v1/jobs/{job_id}/events")).body["data"]
        self.events.sort(key=place)

    async def disturb(self) -> None:
        """What goes on beside a reader: jobs come, the log is sealed and trimmed."""
        if self._chance.random() < 0.2:
            await self.add(short=True)
        if self._chance.random() < 0.3:
            await self._log.seal(self._chance.randrange(1, 6))
            await self._log.snapshot_here()
            await self._log.trim()

    def question(self) -> tuple[dict[str, str], Fits]:
        """Some filters, and what they mean."""
        asked: dict[str, str] = {}
        fits: list[Fits] = []
        for name, value, fit in self._filters():
            if self._chance.random() < 0.3 and not (name in ("before", "jobId") and _other_pool(asked, value)):
                asked[name] = value
                fits.append(fit)
        return asked, lambda event: all(fit(event) for fit in fits)

    def _of(self, event: dict[str, Any]) -> dict[str, str]:
        """What is known of an event's job; nothing where it has none."""
        return self.jobs.get(event["subject"], {})

    def _filters(self) -> Iterator[tuple[str, str, Fits]]:
        chance = self._chance
        one, other = chance.choice(self.events), chance.choice(self.events)
        about = self.jobs[one["subject"]]
        types = chance.sample(["job.created", "job.started", "job.progress", "job.completed"], 2)
        yield "userId", about["userId"], lambda event: self._of(event).get("userId") == about["userId"]
        model = about["model"] + chance.choice(("", "@1"))
        yield "model", model, lambda event: self._of(event).get("model") == about["model"]
        yield "type", ",".join(types), lambda event: event["type"] in types
        yield "from", one["time"], lambda event: event["time"] >= one["time"]
        yield "to", other["time"], lambda event: event["time"] < other["time"]
        yield "after", one["position"], lambda event: _pool(event) == _pool(one) and place(event) > place(one)
        yield "before", other["position"], lambda event: _pool(event) == _pool(other) and place(event) < place(other)
        yield "jobId", one["subject"], lambda event: event["subject"] == one["subject"]


def _pool(event: dict[str, Any]) -> str:
    return str(event["position"]).partition(".")[0]


def _other_pool(asked: dict[str, str], value: str) -> bool:
    """Whether a place, or a job, is of another pool than the places that are asked for already: that is refused."""
    codes = {asked[name].partition(".")[0] for name in ("after", "before") if name in asked}
    code = value[-2:] if value.startswith("job_") else value.partition(".")[0]
    return bool(codes) and codes != {code}


async def read(api: Api, path: str, world: World, **more: Any) -> list[dict[str, Any]]:
    """Read a list to its end while things go on beside it."""
    found, cursor = list[dict[str, Any]](), ""
    while cursor is not None:
        answer = await api.get(path + (cursor and f"&cursor={cursor}"), **more)
        assert answer.status == 200, (path, answer.body)
        found += answer.body["data"]
        cursor = answer.body["nextCursor"]
        await world.disturb()
    return found


async def test_any_question_of_an_operator_is_all_events_read_and_picked(
    api: Api, play: Play, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of everybody's, and of what belongs to nobody."""
    monkeypatch.setattr(scan, "STEP", 5)
    chance = random.Random(5)
    world = World(api, play, log, chance)
    stranger = await api.tenant("t_b")
    for _ in range(3):
        await world.add()
        theirs = await api.submit(stranger, userId="u_1")
        world.jobs[theirs.body["id"]] = {"model": "draw", "userId": "u_1"}

    for _ in range(12):
        asked, fits = world.question()
        if chance.random() < 0.5:
            asked["tenantId"] = chance.choice(("t_a", "t_b"))
        if chance.random() < 0.3:
            asked["workerId"] = play.worker
        path = f"/admin/v1/events?limit={chance.randrange(1, 8)}&" + "&".join(f"{k}={v}" for k, v in asked.items())
        known = await pages(api, "/admin/v1/events", limit=500, key=ADMIN_KEY)
        found = await read(api, path, world, key=ADMIN_KEY)
        now = await pages(api, "/admin/v1/events", limit=500, key=ADMIN_KEY)

        def fit(event: dict[str, Any], asked: dict[str, str] = asked, fits: Fits = fits) -> bool:
            tenant, worker = asked.get("tenantId"), asked.get("workerId")
            named = worker in (None, event["subject"], event["data"].get("workerId"))
            return fits(event) and tenant in (None, event["tenantId"]) and named

        expected = [event for event in now if fit(event)]
        assert len(found) >= sum(map(fit, known)), path
        assert found == expected[: len(found)], path


@pytest.mark.parametrize("seed", [0])
async def test_any_question_in_pages_is_all_events_read_and_picked(
    api: Api, play: Play, log: Log, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Field cases 73 and 78 for lists: pages go on without a hole while the log is sealed and trimmed between them."""
    monkeypatch.setattr(scan, "STEP", 5)
    chance = random.Random(seed)
    world = World(api, play, log, chance)
    for _ in range(5):
        await world.add()

    for _ in range(QUESTIONS):
        asked, fits = world.question()
        backwards, limit = chance.random() < 0.4, chance.randrange(1, 8)
        filters = "&".join(f"{name}={value}" for name, value in asked.items())
        path = f"/v1/events?{filters}&limit={limit}" + ("&order=desc" if backwards else "")
        known, found = list(world.events), await read(api, path, world)
        before, now = ([event for event in events if fits(event)] for events in (known, world.events))
        if backwards:
            assert found == before[::-1], path
        else:  # what comes while it is read may be told, if it is told in its place
            assert len(found) >= len(before), path
            assert found == now[: len(found)], path
        if "after" not in asked:
            exported, _ = await export(api, f"?{filters}")
            assert [{**event, "hash": 0} for event in exported] == [{**event, "hash": 0} for event in now], path


async def test_what_comes_while_one_reads_backwards_is_not_told(api: Api, play: Play) -> None:
    """Also in a pool of which no page had anything yet: it would stand among older events."""
    await api.job(model="draw", pool="large")
    await run_job(api, play)
    known = await pages(api, "/v1/events?order=desc")
    first = (await api.get("/v1/events?order=desc&limit=2")).body
    await api.job(model="draw", pool="large")

    rest = (await api.get(f"/v1/events?order=desc&limit=100&cursor={first['nextCursor']}")).body

    assert first["data"] + rest["data"] == known


async def test_an_export_carries_the_hash_of_what_is_sealed_and_lists_do_not(api: Api, play: Play, log: Log) -> None:
    """Whoever took an export home can hold it against a signed checkpoint; a live event has no hash yet."""
    for _ in range(3):
        await run_job(api, play)
    records = (await RecordReader(api.store.channel()).after("default", "0-0", 1000)).records
    digest, digests = START_DIGEST, {}
    for record in records:
        digest = digests[record.position] = link(digest, record)
    assert not any("hash" in event for event in (await export(api))[0])

    await log.seal(6)
    await log.seal(5)
    for trimmed in (False, True):
        if trimmed:
            await seal_and_trim(log, 1)
        exported, _ = await export(api)
        sealed = {record.position for record in records[: 11 + trimmed]}
        for event in exported:
            position = parse_position(event["position"]).entry
            assert event.get("hash") == (digests[position].hex() if position in sealed else None)
            assert ("hash" in event) == (position in sealed)
        assert not any("hash" in event for event in await pages(api, "/v1/events"))
        one = exported[0]
        assert (await api.get(f"/v1/events/{one['id']}")).body == one


async def test_a_model_is_asked_for_by_name_or_by_version(api: Api, play: Play) -> None:
    """api.md 2.11: only failures of one model. Events of workers and pools have none."""
    drawn, echoed = await run_job(api, play), await run_job(api, play, model="echo")
    everything = await pages(api, "/v1/events")

    for name, job_id in (("draw", drawn), ("draw@1", drawn), ("echo@1", echoed)):
        expected = [event for event in everything if event["subject"] == job_id]
        assert await pages(api, f"/v1/events?model={name}") == expected
        assert await pages(api, f"/admin/v1/events?model={name}", key=ADMIN_KEY) == expected
    assert await pages(api, "/v1/events?model=draw@2") == []
    ended = await pages(api, "/v1/events?model=draw&type=job.completed&order=desc")
    assert [event["subject"] for event in ended] == [drawn]
