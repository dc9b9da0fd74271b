"""All jobs of a tenant followed: snapshot, events of every pool, coming back, and nothing of anybody else."""

import asyncio
import random
from pathlib import Path

import pytest

from contracts.store import keys
from tests.ingest.api import Api, running_api, settings_for
from tests.ingest.live import Told, listening, log_of, previews, progresses, replica
from tests.servers import Server
from tests.store.play import POOL, Play

PATH = "/v1/stream"


async def whole_log(api: Api, tenant: str = "t_a") -> list[str]:
    """Return the positions of all events of the tenant's jobs, as the log holds them."""
    found: list[tuple[str, str]] = []
    for pool, meta in api.service.context.pools.items():
        for position, fields in await api.store.client.xrange(keys.log(pool)):
            subject = fields[b"j"].decode()
            owner = await api.store.client.hget(keys.job(pool, subject), "t") if subject.startswith("job_") else None
            if owner == tenant.encode() and fields[b"t"] != b"preview.available":
                found.append((position.decode(), f"{meta.code}.1.{position.decode()}"))
    return [text for _, text in found]


def positions(told: list[Told]) -> list[str]:
    return [data["position"] for name, _, data in told if name not in ("snapshot", "gap", "end", "preview")]


async def test_a_tenant_sees_its_own_jobs_of_every_pool_and_goes_on_by_its_id(api: Api, play: Play) -> None:
    """Field case 81: only own events; the stream of another tenant is silent about them."""
    attempt = await play.running()
    other = await api.tenant("t_b")
    async with listening(api, PATH) as line, listening(api, PATH, key=other) as silent:
        name, place, data = await line.next()
        assert (name, [job["id"] for job in data["jobs"]], data["hasMore"]) == ("snapshot", [attempt.job_id], False)
        assert (await silent.next())[2] == {"jobs": [], "hasMore": False}
        large = await api.job(pool="large")
        theirs = (await api.submit(other)).body["id"]
        await progresses(play, attempt, 10)
        await previews(play, attempt, 3)
        told = [await line.next() for _ in range(3)]
        assert sorted(data.get("subject", data.get("jobId")) for _, _, data in told) == sorted(
            [large, attempt.job_id, attempt.job_id]
        )
        mine = next(data for name, _, data in told if name == "job.progress")
        assert mine == (await log_of(api, attempt.job_id))[-2]
        assert (await silent.next())[2]["subject"] == theirs
        last = line.ids[-1]
        assert last.count(",") == 1  # a place in each of two pools
    await progresses(play, attempt, 20)
    await api.job(pool="large")
    await play.completes(attempt)
    async with listening(api, PATH, after=last) as line:
        assert sorted(await line.names(3)) == ["job.completed", "job.created", "job.progress"]
    async with listening(api, PATH, after=place) as line:
        assert len({(await line.next())[2]["position"] for _ in range(5)}) == 5


async def test_filters_of_a_tenants_stream(api: Api, play: Play) -> None:
    async with (
        listening(api, PATH + "?userId=u_7") as of_user,
        listening(api, PATH + "?status=completed,failed") as ended,
    ):
        await of_user.next()
        await ended.next()
        await api.job(userId="u_8")
        wanted = await api.job(userId="u_7")
        assert (await of_user.next())[2]["subject"] == wanted
        attempt = await play.running()
        await play.completes(attempt)
        assert (await ended.next())[0] == "job.completed"
    for query in ("status=", "status=done", "userId=", "from=start", "user=u_7"):
        assert (await api.get(f"{PATH}?{query}")).status == 422, query


async def test_a_place_that_is_gone_or_ahead_or_names_too_little_is_a_gap(api: Api, play: Play) -> None:
    """Field case 77, for all jobs of a tenant."""
    async with listening(api, PATH) as line:
        place = (await line.next())[1]
    first, second = place.split(",")
    for odd in (first, f"{first},ab.1.99999999999999-0", place.replace(".1.", ".7."), f"{first},zz.1.1-0"):
        async with listening(api, PATH, after=odd) as line:
            assert await line.names(2) == ["gap", "snapshot"], odd
    attempt = await play.running()
    cut = await api.store.end_of_log(POOL)
    await progresses(play, attempt, 1)
    await api.store.client.xtrim(keys.log(POOL), minid=cut, approximate=False)
    await api.store.client.hset(keys.meta(POOL), "trimmed", cut)
    async with listening(api, PATH, after=place) as line:
        assert (await line.next())[2] == {"requested": place, "oldest": cut}
        assert (await line.next())[2]["jobs"][0]["progress"] == 1
    assert second
    assert (await api.get(PATH, headers={"Last-Event-ID": "nonsense"})).status == 400


async def test_a_slow_tenant_listener_is_ended_and_its_jobs_traced_when_forgotten(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.ingest.live.log_stream.MOST_WAITING", 5)
    attempt = await play.running()
    async with listening(api, PATH) as line:
        place = (await line.next())[1]
        listener = next(iter(api.service._hub.of_tenants(POOL)._of_tenant["t_a"]))
        monkeypatch.setattr(listener, "take", lambda: [])
        await progresses(play, attempt, *range(1, 8))
        assert (await line.rest(), line.reason) == ([], "slow_consumer")
    await play.completes(attempt)
    await api.store.client.delete(keys.job(POOL, attempt.job_id))  # as if it had been forgotten
    async with listening(api, PATH, after=place) as line:
        assert await line.names(8) == ["job.progress"] * 7 + ["job.completed"]


async def test_reconnecting_at_random_shows_each_event_once(own_server: Server, tmp_path: Path) -> None:
    """Field case 76 at scale: 25 drops, two servers, a store that restarts; counted against the log."""
    chance, settings = random.Random(6), settings_for(own_server.url, tmp_path)
    async with running_api(settings) as first, replica(settings) as second:
        play = await Play(first.store).open()
        attempts = [await play.running(slot=slot) for slot in range(4)]
        seen: list[Told] = []
        last = ""
        for drop in range(25):
            api = chance.choice((first, second))
            for _ in range(chance.randrange(6)):
                await progresses(play, chance.choice(attempts), chance.random() * 100)
            if drop == 12:
                own_server.stop()
                own_server.start()
                async with asyncio.timeout(20):
                    while (await first.get("/readyz")).status != 200:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
            async with listening(api, PATH, key=first.key, after=last or None) as line:
                for _ in range(chance.randrange(5)):
                    await progresses(play, chance.choice(attempts), chance.random() * 100)
                    told = await line.next()
                    seen.append(told)
                    last = told[1] or last
        for attempt in attempts:
            await play.completes(attempt)
        log = await whole_log(first)
        async with listening(first, PATH, after=last) as line:
            while not seen or positions(seen)[-1:] != log[-1:]:
                seen.append(await line.next())
        begun = seen[0][1].split(",")[0].split(".")[2]
        expected = [each for each in log if _key(each) > _key(f"aa.1.{begun}")]
        assert positions(seen) == expected
        assert [name for name, _, _ in seen].count("gap") == 0
        assert len(expected) > 60


def _key(position: str) -> tuple[int, int]:
    ms, _, sequence = position.split(".")[2].partition("-")
    return int(ms), int(sequence)
