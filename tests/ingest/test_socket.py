"""Streams over a WebSocket: channels, previews as frames, cancels, and how a socket ends."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest

from contracts.errors import StoreUnavailable
from services.ingest.live import feed, job_stream, previews, socket
from services.ingest.live.unacknowledged import Unacknowledged
from tests.ingest.api import ADMIN_KEY, JOB_SCOPES, Api
from tests.ingest.live import log_of, progresses
from tests.ingest.live import previews as show_previews
from tests.store.play import POOL, Play


@asynccontextmanager
async def socket_of(api: Api, key: str | None = None, **headers: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    sent = {"Authorization": f"Bearer {key or api.key}", **headers}
    async with api.session.ws_connect(f"{api.url}/v1/ws", protocols=("jobs.v1.json",), headers=sent) as ws:
        assert ws.protocol == "jobs.v1.json"
        yield ws


async def ask(ws: aiohttp.ClientWebSocketResponse, **asked: Any) -> Any:
    await ws.send_str(orjson.dumps(asked).decode())
    return await ws.receive_json(timeout=20)


async def test_channels_of_a_job_a_user_and_the_tenant(api: Api, play: Play) -> None:
    attempt = await play.running()
    channel = f"job:{attempt.job_id}"
    async with socket_of(api) as ws:
        told = await ask(ws, op="subscribe", ref="1", channel=channel)
        assert (told["op"], told["ref"], told["snapshot"]["job"]["id"]) == ("subscribed", "1", attempt.job_id)
        place = told["position"]
        await progresses(play, attempt, 5)
        event = (await log_of(api, attempt.job_id))[-1]
        assert await ws.receive_json(timeout=20) == {
            "op": "event", "channel": channel, "position": event["position"], "event": event,
        }  # fmt: skip
        assert (await ask(ws, op="unsubscribe", ref="2", channel=channel)) == {"op": "reply", "ref": "2", "ok": True}
        assert (await ask(ws, op="subscribe", ref=3, channel=channel, after=place))["position"] == place
        assert (await ws.receive_json(timeout=20))["event"] == event
        assert (await ask(ws, op="subscribe", ref=4, channel="user:u_9"))["snapshot"]["jobs"] == []
        job_id = await api.job(userId="u_9")
        assert (await ws.receive_json(timeout=20))["event"]["subject"] == job_id
        assert (await ask(ws, op="cancel", ref=5, jobId=job_id))["op"] in ("reply", "event")
        gap = await ask(ws, op="subscribe", ref=6, channel="tenant", after="aa.1.1-0")
        while gap["op"] in ("event", "reply", "subscribed"):
            gap = await ws.receive_json(timeout=20)
        assert (gap["op"], gap["channel"], gap["requested"]) == ("gap", "tenant", "aa.1.1-0")
        while (gap["op"], gap["channel"]) != ("snapshot", "tenant"):
            gap = await ws.receive_json(timeout=20)
        await play.completes(attempt)
        seen = []
        while ("end", channel) not in seen:
            frame = await ws.receive_json(timeout=20)
            seen.append((frame["op"], frame["channel"]))
        assert ("event", channel) in seen


async def test_what_is_refused_on_a_socket(api: Api, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Field case 81: a job of somebody else is not there; a page of another site that comes with cookies is refused."""
    job_id = (await play.running()).job_id
    other = await api.tenant("t_b", [*JOB_SCOPES])
    reader = await api.new_key("t_a", ["jobs:read"])
    async with socket_of(api) as ws:
        told = await ask(ws, op="subscribe", ref="r", channel="pool:default")
        assert told["problem"]["code"] == "missing_scope"
        assert (await ws.receive(timeout=20)).data == 4403
    async with socket_of(api, other) as ws:
        for asked in (
            {"op": "subscribe", "channel": f"job:{job_id}"}, {"op": "cancel", "jobId": job_id},
            {"op": "subscribe", "channel": "job:x"},
        ):  # fmt: skip
            assert (await ask(ws, ref="r", **asked))["problem"]["code"] == "job_not_found"
        for asked in (
            {"op": "subscribe", "channel": "all"}, {"op": "subscribe", "channel": "user:"}, {"op": "?"},
            {"op": "ack", "channel": "tenant", "position": "x"}, {"op": "ack", "channel": "tenant"},
            {"op": "subscribe", "channel": "tenant", "types": "x"}, {"op": "subscribe"}, {},
        ):  # fmt: skip
            told = await ask(ws, ref="r", **asked)
            assert (told["op"], told["problem"]["status"]) == ("error", 422), asked
    async with socket_of(api, reader) as ws:
        assert (await ask(ws, op="cancel", jobId=job_id))["problem"]["code"] == "missing_scope"
        monkeypatch.setattr(socket, "MOST_CHANNELS", 0)
        await ws.send_str('{"op":"subscribe","channel":"tenant"}')
        assert (await ws.receive(timeout=20)).data == 4429
    async with socket_of(api) as ws:
        await ws.send_str("[]")
        assert (await ws.receive(timeout=20)).data == 4400
    for headers, status in (
        ({"Cookie": "a=b", "Origin": "https://evil.example"}, 403), ({"Cookie": "a=b", "Origin": api.url}, 200),
        ({"Cookie": "a=b", "Origin": "https://gen.example"}, 200), ({"Origin": "https://evil.example"}, 200),
    ):  # fmt: skip
        sent = {"Authorization": f"Bearer {api.key}", **headers}
        async with api.session.get(f"{api.url}/v1/stream", headers=sent) as response:
            assert response.status == status, headers
        if status == 403:
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                async with socket_of(api, **headers):
                    pass


async def test_operators_follow_pools_and_workers_and_go_on_by_a_position(api: Api, play: Play) -> None:
    """Everything of a pool, whose jobs ever they are, as `/admin/v1/events` shows it; and nothing that jobs show."""
    other = await api.tenant("t_b", [*JOB_SCOPES])
    async with socket_of(api, ADMIN_KEY) as ws, socket_of(api, ADMIN_KEY) as of_workers:
        told = await ask(ws, op="subscribe", ref=1, channel="pool:default")
        assert [pool["name"] for pool in told["snapshot"]["pools"]] == ["default"]
        assert [worker["id"] for worker in told["snapshot"]["workers"]] == [play.worker]
        place = (await ask(of_workers, op="subscribe", channel="workers"))["position"]
        attempt = await play.running()
        await show_previews(play, attempt, 3)
        await api.submit(other)
        worker = await play.registers()
        listed = (await api.admin("GET", f"/admin/v1/events?after={told['position']}")).body["data"]
        listed = [event for event in listed if event["type"] != "preview.available"]
        assert {event["tenantId"] for event in listed} == {"t_a", "t_b", None}
        seen = [await ws.receive_json(timeout=20) for _ in listed]
        assert [frame["event"] for frame in seen] == listed
        assert (await of_workers.receive_json(timeout=20))["event"] == listed[-1]
        again = await ask(ws, op="subscribe", channel="pool:default", after=seen[1]["position"], types="worker.*")
        assert again["position"] == seen[1]["position"]
        assert (await ws.receive_json(timeout=20))["event"]["subject"] == worker
        again = await ask(of_workers, op="subscribe", channel="workers", after=place)
        assert (await of_workers.receive_json(timeout=20))["event"]["subject"] == worker
        for channel, code in (("pool:none", "pool_not_found"), ("tenant", "missing_scope")):
            assert (await ask(ws, op="subscribe", channel=channel))["problem"]["code"] == code
        assert (await ws.receive(timeout=20)).data == 4403


async def test_a_client_that_acknowledges_and_falls_behind_is_slow(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field case 83: behind a proxy that takes everything, only the client's own word tells how slow it is."""
    monkeypatch.setattr(socket, "Unacknowledged", lambda: Unacknowledged(2))
    attempt = await play.running()
    channel = f"job:{attempt.job_id}"
    async with socket_of(api) as silent, socket_of(api) as ws:
        await ask(silent, op="subscribe", channel=channel)
        told = await ask(ws, op="subscribe", channel=channel)
        for percent in range(1, 5):
            acknowledged = await ask(ws, op="ack", ref=percent, channel=channel, position=told["position"])
            assert acknowledged == {"op": "reply", "ref": percent, "ok": True}
            await progresses(play, attempt, percent)
            told = await ws.receive_json(timeout=20)
            assert told["event"]["data"]["progress"] == percent
            assert (await silent.receive_json(timeout=20))["event"] == told["event"]
        await progresses(play, attempt, 5, 6, 7)
        assert [(await ws.receive_json(timeout=20))["op"] for _ in range(2)] == ["event", "end"]
        assert (await ws.receive(timeout=20)).data == 4409
    shown = (await api.get("/metrics")).body.decode()
    assert 'headrace_stream_slow_consumers_total{kind="job"} 1.0' in shown


async def test_a_channel_that_cannot_be_told_now_asks_to_come_again(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1013: the store or the archive went away between the subscription and what was missed."""
    place = (await api.get(f"/v1/jobs/{await api.job()}/events")).body["data"][0]["position"]

    def away(*asked: object) -> None:
        raise StoreUnavailable("away")

    async with socket_of(api, ADMIN_KEY) as ws:
        monkeypatch.setattr(api.service._hub.archive, "entries", away)
        await ask(ws, op="subscribe", channel="pool:default", after=place)
        assert (await ws.receive(timeout=20)).data == 1013


async def test_a_preview_is_a_frame_with_its_bytes(api: Api, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def content(*asked: object) -> bytes:
        return b"\x89pic"

    monkeypatch.setattr(previews, "_content", content)
    attempt = await play.running()
    async with socket_of(api) as ws:
        await ask(ws, op="subscribe", channel=f"job:{attempt.job_id}")
        await show_previews(play, attempt, 7)
        frame = await ws.receive_bytes(timeout=20)
        kind, length = struct.unpack(">II", frame[:8])
        facts = orjson.loads(frame[8 : 8 + length])
        assert (kind, facts["jobId"], facts["step"], facts["mime"]) == (4, attempt.job_id, 7, "image/webp")
        assert frame[8 + length :] == b"\x89pic"


async def test_a_socket_ends_with_the_key_the_process_or_what_it_does_not_take(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field case 83: a client that takes nothing is closed with a code, and nothing more waits for it than is bounded;
    others hear at once.
    """
    monkeypatch.setattr(job_stream, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(socket, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(feed, "MOST_WAITING", 20)
    attempt = await play.running()
    channel = f"job:{attempt.job_id}"
    key = await api.new_key("t_a")
    async with socket_of(api) as slow:
        await ask(slow, op="subscribe", channel=channel)
        listener = next(iter(api.service._hub.feed(POOL)._of_job[attempt.job_id]))
        monkeypatch.setattr(listener, "take", lambda: [])
        async with socket_of(api, key) as quick:
            await ask(quick, op="subscribe", channel=channel)
            for percent in range(1, 60):
                await progresses(play, attempt, percent)
                told = await quick.receive_json(timeout=20)
                assert told["event"]["data"]["progress"] == percent
                assert len(listener._waiting) <= 20
            assert (await slow.receive_json(timeout=20))["reason"] == "slow_consumer"
            assert (await slow.receive(timeout=20)).data == 4409
            await api.admin("DELETE", f"/admin/v1/tenants/t_a/keys/key_{key.split('_')[2]}", json={})
            assert (await quick.receive(timeout=20)).data == 4401
    async with socket_of(api) as ws, socket_of(api) as idle:
        await ask(ws, op="subscribe", channel=channel)
        stopping = asyncio.create_task(api.service.stop())
        assert (await ws.receive_json(timeout=20))["reason"] == "going_away"
        assert {(await ws.receive(timeout=20)).data, (await idle.receive(timeout=20)).data} == {1001}
        await stopping


async def test_tokens_open_streams_for_a_while_and_nothing_else(
    api: Api, play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    """Field case 81: a token sees what it names, ends with its time and its key, and is in no log."""
    mine, foreign = await api.job(userId="u_1"), await api.job(userId="u_2")
    made = await api.call("POST", "/v1/stream-tokens", json={"jobIds": [mine], "ttlSeconds": 60})
    assert made.status == 201
    token = made.body["token"]
    of_user = (await api.call("POST", "/v1/stream-tokens", json={"userId": "u_1"})).body["token"]

    async def status(path: str) -> int:
        async with api.session.get(api.url + path) as response:
            return response.status

    async def jobs(path: str) -> list[str]:
        async with api.session.get(api.url + path) as response:
            lines = [line async for line in _until_data(response)]
        return [job["id"] for job in orjson.loads(lines[-1][6:])["jobs"]]

    for text in (token, of_user):
        assert await status(f"/v1/jobs/{mine}/stream?token={text}") == 200
        assert await status(f"/v1/jobs/{foreign}/stream?token={text}") == 404
        assert await jobs(f"/v1/stream?token={text}") == [mine]
        assert await status(f"/v1/jobs/{mine}?token={text}") == 401
        assert (await api.call("POST", "/v1/stream-tokens", json={}, key=text)).status == 401
    assert await status(f"/v1/stream?token={of_user}&userId=u_2") == 404
    for forged in (token[:-1], token[:-2] + "xx", "st_x.y", "st_", "x", token.replace(".", "A.")):
        assert await status(f"/v1/stream?token={forged}") == 401
    async with api.session.ws_connect(f"{api.url}/v1/ws?token={token}") as ws:
        assert (await ask(ws, op="cancel", jobId=mine))["problem"]["code"] == "missing_scope"
        assert (await ask(ws, op="auth", token=api.key))["op"] == "error"
        api.service.context.now_ms = lambda: 1 << 50
        assert (await ws.receive(timeout=20)).data == 4408
    assert await status(f"/v1/jobs/{mine}/stream?token={token}") == 401
    for body in ({"ttlSeconds": 901}, {"jobIds": []}, {"jobIds": [mine], "x": 1}):
        assert (await api.call("POST", "/v1/stream-tokens", json=body)).status == 422
    unknown = await api.call("POST", "/v1/stream-tokens", json={"jobIds": ["job_" + "0" * 26 + "aa"]})
    assert unknown.code == "job_not_found"
    out = capsys.readouterr()
    assert token[3:40] not in out.out + out.err


async def _until_data(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async with asyncio.timeout(20):
        async for line in response.content:
            yield line
            if line.startswith(b"data:"):
                return
