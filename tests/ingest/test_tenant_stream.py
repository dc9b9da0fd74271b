"""All jobs of a tenant followed: snapshot, events of every pool, coming back, and nothing of anybody else."""

import pytest

from contracts.store import keys
from tests.ingest.api import Api
from tests.ingest.live import listening, log_of, previews, progresses
from tests.store.play import POOL, Play

PATH = "/v1/stream"


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
