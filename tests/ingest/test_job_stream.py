"""One job followed: snapshot, events, end; coming back; what is refused."""

import asyncio
import socket
from pathlib import Path

import pytest

from contracts.settings import Settings
from contracts.store import keys
from services.ingest.handlers.read import Details, JobReader, Shown
from services.ingest.live import feed, job_stream, sse
from tests.ingest.api import Api, running_api, settings_for
from tests.ingest.live import listening, log_of, previews, progresses, replica
from tests.store.play import POOL, Play


def path_of(job_id: str, query: str = "") -> str:
    return f"/v1/jobs/{job_id}/stream{query}"


async def test_a_client_that_drops_and_comes_back_has_each_event_once(api: Api, play: Play) -> None:
    """Field case 76: the first gets what it missed and goes on, the second begins with how things are, the third hears
    of the end. None of them submitted the job.
    """
    attempt = await play.running()
    path = path_of(attempt.job_id)
    async with listening(api, path) as line:
        name, place, data = await line.next()
        assert (name, data["job"]["status"], place) == ("snapshot", "in_progress", data["job"]["position"])
        await progresses(play, attempt, 10, 30)
        seen = [await line.next(), await line.next()]
        assert [told[2]["data"]["progress"] for told in seen] == [10, 30]
    await progresses(play, attempt, 40, 50, 60)
    async with listening(api, path, after=seen[-1][1]) as again, listening(api, path) as second:
        seen += [await again.next() for _ in range(3)]
        assert (await second.next())[2]["job"]["progress"] == 60
        await play.completes(attempt)
        seen += await again.rest()
        assert [told[0] for told in await second.rest()] == ["job.completed"]
        assert (again.reason, second.reason) == ("terminal", "terminal")
    log = await log_of(api, attempt.job_id)
    assert [told[2] for told in seen] == log[-6:]  # the very object that the list shows
    assert [told[1] for told in seen] == [event["position"] for event in log[-6:]]
    async with listening(api, path) as third:
        assert [(name, data["job"]["status"]) for name, _, data in await third.rest()] == [("snapshot", "completed")]
    headers = {"Last-Event-ID": seen[-1][1]}
    assert (await api.get(path, headers=headers)).status == 204
    async with listening(api, path + "?from=start") as replay:
        assert [told[2] for told in await replay.rest()] == log
    shown = (await api.get("/metrics")).body.decode()
    assert 'headrace_stream_clients{kind="job"} 0.0' in shown
    assert 'headrace_stream_resumes_total{kind="job"} 1.0' in shown
    # Live events, and not what was missed: 10 and 30 to the first, the end to two.
    assert "headrace_stream_lag_seconds_count 4.0" in shown


async def test_what_the_snapshot_has_is_not_told_again(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    attempt = await play.running()
    look = JobReader.details

    async def looks_late(reader: JobReader, shown: Shown) -> Details:
        await progresses(play, attempt, 10)  # it listens already
        listener = next(iter(api.service._hub.feed(POOL)._of_job[attempt.job_id]))
        assert await listener.wait(20)
        listener._changed.set()
        return await look(reader, shown)

    monkeypatch.setattr(JobReader, "details", looks_late)
    async with listening(api, path_of(attempt.job_id)) as line:
        assert (await line.next())[2]["job"]["progress"] == 10
        await progresses(play, attempt, 20)
        assert (await line.next())[2]["data"]["progress"] == 20


async def test_a_place_that_is_gone_foreign_or_ahead_is_told_as_a_gap(api: Api, play: Play) -> None:
    """Field case 77: never silence: a gap and how things are for each; 400 for what is no place at all."""
    attempt, other = await play.running(), await play.running(slot=1)
    await progresses(play, attempt, *range(1, 20))
    places = [event["position"] for event in await log_of(api, attempt.job_id)]
    foreign = (await log_of(api, other.job_id))[-1]["position"]
    ahead = "aa.1.99999999999999-0"
    for place in (foreign, ahead, places[3].replace("aa.1.", "aa.2."), places[3].replace("aa.1.", "zz.1.")):
        async with listening(api, path_of(attempt.job_id), after=place) as line:
            told = [await line.next(), await line.next()]
        assert [name for name, _, _ in told] == ["gap", "snapshot"]
        assert (told[0][2]["requested"], told[1][1]) == (place, places[-1])
    await api.store.client.xtrim(keys.log(POOL), minid=places[8].split(".")[2], approximate=False)
    async with listening(api, path_of(attempt.job_id), after=places[3]) as line:
        assert (await line.next())[2] == {"requested": places[3], "oldest": places[8]}
        assert (await line.next())[0] == "snapshot"
        await progresses(play, attempt, 50)
        assert (await line.next())[2]["data"]["progress"] == 50
    async with listening(api, path_of(attempt.job_id), after=places[7]) as line:
        assert (await line.next())[1] == places[8]  # its own entry is gone, what follows is not
    async with listening(api, path_of(attempt.job_id, "?from=start")) as line:
        assert await line.names(2) == ["gap", "snapshot"]
    for malformed in ("x", "aa.1", "1-0", "aa.1.1-0,", "aa.1.1-0;DROP"):
        refused = await api.get(path_of(attempt.job_id), headers={"Last-Event-ID": malformed})
        assert (refused.status, refused.code) == (400, "bad_cursor")


async def test_a_reader_that_stops_reading_is_told_and_misses_nothing(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field case 73: too slow for what comes, it is ended with a reason, and what it missed is there by its id."""
    monkeypatch.setattr(feed, "MOST_WAITING", 20)
    attempt = await play.running()
    async with listening(api, path_of(attempt.job_id)) as line:
        first = (await line.next())[1]
        listener = next(iter(api.service._hub.feed(POOL)._of_job[attempt.job_id]))
        monkeypatch.setattr(listener, "take", lambda: [])  # its socket takes nothing
        await progresses(play, attempt, *range(1, 40))
        async with asyncio.timeout(20):
            while not listener.is_slow:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await line.rest(), line.reason) == ([], "slow_consumer")
    await play.completes(attempt)
    async with listening(api, path_of(attempt.job_id), after=first) as line:
        told = await line.rest()
    assert [name for name, _, _ in told] == ["job.progress"] * 39 + ["job.completed"]


async def test_only_the_newest_preview_is_shown_and_it_moves_nobody(api: Api, play: Play) -> None:
    attempt = await play.running()
    path = path_of(attempt.job_id)
    async with listening(api, path) as line, listening(api, path + "?previews=none") as without:
        await line.next()
        await previews(play, attempt, 5)
        name, place, data = await line.next()
        assert (name, place, data["step"]) == ("preview", "", 5)
        assert data["url"] == "https://gen.example/v1/artifacts/x/content"
        await play.completes(attempt)
        assert [name for name, _, _ in await without.rest()] == ["snapshot", "job.completed"]
        await line.rest()
    log = await log_of(api, attempt.job_id)
    async with listening(api, path + "?from=start") as replay:
        told = [name for name, _, _ in await replay.rest()]
    assert told == [event["type"].replace("preview.available", "preview") for event in log]


async def test_progress_comes_no_more_often_than_asked_and_its_last_is_not_lost(api: Api, play: Play) -> None:
    attempt = await play.running()
    async with listening(api, path_of(attempt.job_id, "?minIntervalMs=60000")) as line:
        await line.next()
        await progresses(play, attempt, 1, 2, 3)
        await play.completes(attempt)
        shown = [data["data"].get("progress") for name, _, data in await line.rest()]
    assert shown == [1, 3, None]


async def test_types_choose_and_what_means_nothing_is_refused(api: Api, play: Play) -> None:
    attempt = await play.running()
    path = path_of(attempt.job_id)
    async with listening(api, path + "?types=thumbnail.ready") as few:
        async with listening(api, path + "?types=job.completed,thumbnail.ready") as line:
            await progresses(play, attempt, 5)
            await play.completes(attempt)
            assert [name for name, _, _ in await line.rest()] == ["snapshot", "job.completed"]
        assert [name for name, _, _ in await few.rest()] == ["snapshot"]
    # Whoever asked for little heard of the end as well, and is not sent round in circles by his browser.
    assert (await api.get(path, headers={"Last-Event-ID": few.ids[-1]})).status == 204
    for query in ("types=", "types=jobs.*", "types=job.completed,", "previews=all", "minIntervalMs=x", "from=end",
                  "minIntervalMs=60001", "type=job.*"):  # fmt: skip
        assert (await api.get(f"{path}?{query}")).status == 422, query


async def test_an_idle_stream_beats_and_a_revoked_key_ends_it(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field case 81: revoking the key closes open streams within the keep-alive period; others see nothing of it."""
    monkeypatch.setattr(job_stream, "HEARTBEAT_S", 0.05)
    attempt = await play.running()
    key, other = await api.new_key("t_a"), await api.tenant("t_b")
    assert (await api.get(path_of(attempt.job_id), key=other)).code == "job_not_found"
    async with listening(api, path_of(attempt.job_id), key=key) as line:
        await line.next()
        assert line.response.headers["X-Accel-Buffering"] == "no"
        assert "no-cache" in line.response.headers["Cache-Control"]
        await line.beat()
        revoked = await api.admin("DELETE", f"/admin/v1/tenants/t_a/keys/key_{key.split('_')[2]}", json={})
        assert revoked.status < 300, revoked.body
        assert (await line.rest(), line.reason) == ([], "unauthenticated")


async def test_clients_that_vanish_leave_nothing(api: Api, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case 78: after a reset all of them are gone before the next beat (of 1,000 by hand after 0.7 s); a silent
    drop is left to the kernel, which gives a peer up that acknowledges nothing (by hand after 25 s).
    """
    options: list[int] = []
    monkeypatch.setattr(sse, "bound_socket", lambda transport: options.append(transport is not None))
    job_id = (await play.running()).job_id
    clients = (await api.store.client.info("clients"))["connected_clients"]
    request = f"GET {path_of(job_id)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.key}\r\n\r\n".encode()
    lines = [await asyncio.open_connection("127.0.0.1", api.service.port) for _ in range(40)]
    for reader, writer in lines:
        writer.write(request)
        await reader.readuntil(b"event: snapshot\n")
    assert api.service._hub.open_count == 40 == len(options)
    assert (await api.store.client.info("clients"))["connected_clients"] <= clients + 3
    for _, writer in lines:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()
    async with asyncio.timeout(job_stream.HEARTBEAT_S / 2):
        while api.service._hub.open_count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert not api.service._hub.feed(POOL).is_followed


async def test_any_number_of_listeners_costs_the_store_one_read(api: Api, play: Play) -> None:
    """The store's own count: the same events read for one listener and for thirty."""

    async def reads(listeners: int) -> int:
        attempt = await play.running(slot=listeners)
        lines = [listening(api, path_of(attempt.job_id)) for _ in range(listeners)]
        opened = [await line.__aenter__() for line in lines]
        for line in opened:
            await line.next()
        before = (await api.store.client.info("commandstats"))["cmdstat_xread"]["calls"]
        for percent in range(1, 31):
            await progresses(play, attempt, percent)
            for line in opened:
                await line.next()
        after = (await api.store.client.info("commandstats"))["cmdstat_xread"]["calls"]
        for line in lines:
            await line.__aexit__(None, None, None)
        return int(after - before)

    one, many = await reads(1), await reads(30)
    assert 30 <= many <= one + 15  # the readers of the configuration and of others tick beside it


async def test_a_key_has_so_many_streams_and_no_more(store_url: str, tmp_path: Path) -> None:
    async with running_api(settings_for(store_url, tmp_path, ingest={"key_streams": 1})) as api:
        job_id = (await (await Play(api.store).open()).running()).job_id
        async with listening(api, path_of(job_id)):
            refused = await api.get(path_of(job_id))
            assert (refused.status, refused.code, refused.body["violated-policies"]) == (
                429, "quota_exceeded", ["streams"],
            )  # fmt: skip
            async with listening(api, path_of(job_id), key=await api.new_key("t_a")):
                pass


async def test_a_process_that_ends_says_so_and_another_goes_on(api: Api, play: Play, tmp_path: Path) -> None:
    attempt = await play.running()
    settings: Settings = api.service.context.settings
    async with listening(api, path_of(attempt.job_id)) as line:
        place = (await line.next())[1]
        await asyncio.wait_for(api.service.stop(), 20)
        assert (await line.rest(), line.reason) == ([], "going_away")
    async with replica(settings) as second:
        play.store = second.store
        await progresses(play, attempt, 7)
        async with listening(second, path_of(attempt.job_id), key=api.key, after=place) as line:
            assert (await line.next())[2]["data"]["progress"] == 7


async def test_a_log_that_is_another_after_a_lost_connection_is_a_gap(api: Api, play: Play) -> None:
    """Field case 77: the store comes back without its last entry: whoever listened is told of it."""
    attempt = await play.running()
    store = api.store.client
    async with listening(api, path_of(attempt.job_id)) as line:
        await line.next()
        await progresses(play, attempt, 10)
        place = (await line.next())[1]
        await _cut_readers(api)  # the same log: nothing is told
        await progresses(play, attempt, 20)
        last = (await line.next())[1]
        await store.xdel(keys.log(POOL), last.split(".")[2])
        await _cut_readers(api)
        assert (await line.next())[::2] == ("gap", {"requested": last, "oldest": None})
        assert (await line.next())[0] == "snapshot"
        await progresses(play, attempt, 30)
        assert (await line.next())[2]["data"]["progress"] == 30
    assert place < last


async def _cut_readers(api: Api) -> None:
    for client in await api.store.client.client_list():
        if client["cmd"] == "xread":
            await api.store.client.client_kill_filter(_id=client["id"])
