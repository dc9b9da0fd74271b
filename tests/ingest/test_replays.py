"""Replays: the past once more, as fast as wanted, for its tenant alone, and without a trace."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from contracts import events as ev
from contracts.aside import addresses_of
from contracts.positions import entry_ms, parse_position
from contracts.wire import decode
from services.ingest.events.replaying import Pace
from services.ingest.handlers import replays
from services.ingest.replays import running
from services.ingest.replays.__main__ import Projection, told
from tests.archive.rig import Log
from tests.harness import eventually
from tests.ingest.api import ADMIN_KEY, Api
from tests.ingest.test_events import log, pages, run_job, seal_and_trim
from tests.store.play import Play

__all__ = ["log"]

HOOKED = {"webhookUrl": "https://app.example/hook"}


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
    """Field cases 74 and 79: it goes on where its reader was, sends no webhooks and starts no jobs."""
    for _ in range(3):
        await run_job(api, play, **HOOKED)
    listed = await pages(api, "/v1/events", limit=500)
    await seal_and_trim(log, 6)

    async with untouched(api):
        told = await replay(api)
        failures = await replay(api, {"filters": {"type": "job.completed", "model": "draw"}})
    assert [name for name, _, _ in await replay(api, {"filters": {"model": "echo"}})] == ["end"]

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


async def test_what_cannot_be_replayed_is_refused(api: Api) -> None:
    bodies: list[dict[str, Any]] = [
        {"speed": 0}, {"speed": 101}, {"speed": "fast"}, {"filters": {"tenantId": "t_b"}}, {"at": "aa.1.1-0"},
        {"mode": "project", "speed": 2}, {"mode": "project", "filters": {"type": "job.*"}}, {"policy": {}},
    ]  # fmt: skip
    for body in bodies:
        assert (await api.call("POST", "/v1/replays", json=body)).status == 422, body


async def test_a_projection_is_what_the_log_says_at_a_place(api: Api, play: Play, log: Log) -> None:
    """Field cases 74 and 79: made again from archive and log, as `GET /v1/jobs/{id}?at=` shows each job; no webhook
    goes out, no job starts, no projection changes.
    """
    jobs = [await run_job(api, play, **HOOKED), await api.job(**HOOKED)]
    await api.call("POST", f"/v1/jobs/{jobs[1]}/cancel")
    stranger = await api.tenant("t_b")
    listed = await pages(api, "/v1/events", limit=500)
    await seal_and_trim(log, 5)
    at = listed[4]["position"]

    async with untouched(api):
        made = await compute(api, {"mode": "project", "at": at})
        streamed = (await api.call("POST", "/v1/replays", json={})).body

    assert made["status"] == "completed", made["problem"]
    told = made["result"]["pools"]["default"]
    then = {each["id"]: each for each in told["jobs"]}
    assert f"aa.1.{told['position']}" == at
    assert told["counts"] == (await api.get(f"/v1/state?at={at}")).body["counts"]
    for job_id, state in then.items():
        shown = (await api.get(f"/v1/jobs/{job_id}?at={at}")).body
        assert {name: state[name] for name in ("status", "attempt", "sequence", "progress")} == {
            name: shown[name] for name in ("status", "attempt", "sequence", "progress")
        }
    assert list(then) == [jobs[0]]  # the other one was not there yet
    assert [each["id"] for each in (await api.get("/v1/replays")).body["data"]] == [streamed["id"], made["id"]]
    assert (await api.get(f"/v1/replays/{made['id']}", key=stranger)).code == "replay_not_found"
    assert (await api.call("DELETE", f"/v1/replays/{made['id']}", key=stranger)).code == "replay_not_found"
    assert (await api.get("/v1/replays", key=stranger)).body["data"] == []


def test_a_projection_goes_on_behind_what_it_does_not_know_and_counts_what_does_not_follow() -> None:
    """Field case 80: events of another release are kept and skipped, none is guessed or shown to others."""
    created = '{"tenantId":"t_a","model":"draw@1","timeoutMs":1,"later":true}'
    fields = [
        {"t": "job.created", "n": "1", "d": created},
        {"t": "job.teleported/3", "n": "2", "d": '{"to":"mars"}'},
        {"t": "job.priority_changed", "n": "3", "d": '{"priority":"high","previous":"normal"}'},
        {"t": "job.priority_changed", "n": "9", "d": '{"priority":"low","previous":"high"}'},
    ]
    found, others, another = Projection("t_a"), Projection("t_b"), Projection("t_a", "job_2")

    for number, each in enumerate(fields):
        for projection in (found, others, another):
            projection.fold(decode(f"{number + 1}-0", {"j": "job_1", **each}))

    state = found.jobs["job_1"]
    assert not others.jobs | another.jobs
    assert (state.sequence, state.priority, found.skipped) == (3, "high", 1)


def test_a_projection_counts_a_job_that_runs_again_as_what_it_is_now() -> None:
    fields = [
        {"t": "job.created", "n": "1", "d": '{"tenantId":"t_a","model":"draw@1","timeoutMs":1}'},
        {"t": "job.cancelled", "n": "2", "d": '{"how":"queued","by":"k"}'},
        {"t": "job.retried", "n": "3", "d": '{"by":"key/k","fromStatus":"cancelled","run":2,"maxAttempts":3}'},
    ]
    found = Projection("t_a")

    for number, each in enumerate(fields):
        found.fold(decode(f"{number + 1}-0", {"j": "job_1", **each}))

    assert found.skipped == 0
    assert {status: count for status, count in told(found)["counts"].items() if count} == {"queued": 1}


async def test_another_policy_is_tried_on_what_was_recorded_by_operators_only(api: Api, play: Play) -> None:
    """The same figures as `headrace policy simulate`, whose code it is."""
    slot = ev.SlotInfo(index=0, device="d", kind="sim", bytes=1 << 30)
    worker = ev.WorkerRegistered(worker_id="wrk_1", host="h", pid=1, slots=(slot,))
    await api.store.attempts.register("default", worker, {})
    for _ in range(3):
        await run_job(api, play)
    policy = {"leadSeconds": 30, "weights": {"t_a": 2}}

    async with untouched(api):
        found = await compute(api, {"mode": "whatif", "policy": policy}, key=ADMIN_KEY)

    assert found["status"] == "completed", found["problem"]
    assert [(each["of"], each["jobs"]) for each in found["result"]["waits"]] == [
        ("all", 3), ("tier standard", 3), ("tenant t_a", 3)
    ]  # fmt: skip
    assert set(found["result"]["waits"][0]["before"]) == {"p50S", "p95S", "p99S"}
    assert (found["policy"], found["pool"], found["urls"]["stream"]) == (policy, "default", None)
    assert (await api.call("POST", "/v1/replays", json={"mode": "whatif"})).code == "missing_scope"
    assert (await api.get(f"/v1/replays/{found['id']}")).code == "replay_not_found"
    wrong = await api.admin(
        "POST", "/v1/replays", json={"mode": "whatif", "policy": {"tierFloors": {"free": 0.5, "enterprise": 0.5}}}
    )
    assert wrong.pointers == ["/policy"]
    many = {"mode": "whatif", "policy": {"weights": {f"t_{number}": 1.5 for number in range(1_000)}}}
    assert (await api.admin("POST", "/v1/replays", json=many)).code == "invalid_input"  # no id has room for that
    assert [each["id"] for each in (await api.admin("GET", "/v1/replays")).body["data"]] == [found["id"]]
    assert (await api.admin("POST", "/v1/replays", json={"mode": "stream"})).code == "missing_scope"


async def test_a_replay_that_computes_is_bounded_and_ends_when_it_is_deleted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(replays._MODULES, "project", "tests.ingest.sleeper")
    made = await api.call("POST", "/v1/replays", json={"mode": "project"})
    second = await api.call("POST", "/v1/replays", json={"mode": "project", "at": "2026-11-30T00:00:00Z"})
    (pid,) = await asyncio.to_thread(sleepers)

    assert (made.status, made.body["status"]) == (202, "running")
    assert (second.code, second.body["violated-policies"]) == ("quota_exceeded", ["replays"])
    assert (await api.get(f"/v1/replays/{made.body['id']}/stream")).code == "replay_not_found"
    link = made.body["urls"]["self"]
    assert [(await api.call("DELETE", link)).status for _ in range(2)] == [204, 204]
    assert (await api.get(link)).code == "replay_not_found"
    assert (await api.get("/v1/replays")).body["data"] == []
    await eventually(lambda: pid not in sleepers(), "its process is gone")
    monkeypatch.setattr(running, "LIMIT_S", 0.2)
    late = await compute(api, {"mode": "project"})
    assert (late["status"], late["problem"]["code"]) == ("failed", "too_large")


async def _made(api: Api, user_id: str) -> str:
    return str((await api.call("POST", "/v1/replays", json={"filters": {"userId": user_id}})).body["id"])


async def test_what_was_deleted_is_known_as_long_as_anything_else_and_no_longer(api: Api) -> None:
    """Ids that other processes made were kept without end by the one that was told to delete them."""
    made = [await _made(api, str(number)) for number in range(running.KEPT + 2)]
    for replay_id in made:
        assert (await api.call("DELETE", f"/v1/replays/{replay_id}")).status == 204

    assert (await api.get(f"/v1/replays/{made[-1]}")).code == "replay_not_found"
    assert (await api.get(f"/v1/replays/{made[-running.KEPT]}")).code == "replay_not_found"
    assert (await api.get(f"/v1/replays/{made[0]}")).status == 200  # one that nobody knows is as good as new


async def test_a_deleted_stream_ends(api: Api, play: Play) -> None:
    await run_job(api, play)
    await asyncio.sleep(0.05)
    await run_job(api, play)
    made = (await api.call("POST", "/v1/replays", json={"speed": 1})).body

    told = asyncio.create_task(api.get(made["urls"]["stream"]))
    await asyncio.sleep(0.01)
    assert (await api.call("DELETE", made["urls"]["self"])).status == 204

    assert b'"going_away"' in (await told).raw
    assert (await api.get(made["urls"]["stream"])).code == "replay_not_found"


@asynccontextmanager
async def untouched(api: Api) -> AsyncIterator[None]:
    """The guard of every mode: the block writes nothing and reaches nobody.

    The store holds the same bytes under the same keys after it, deliveries, groups, work streams and job hashes among
    them, and this process connects to nothing but the store and itself; processes that compute cannot (see below).
    """
    before = await _everything(api)
    allowed = addresses_of(api.service.context.settings.redis.url) | {("127.0.0.1", api.service.port)}
    with connections() as reached:
        yield
    assert await _everything(api) == before
    assert set(reached) <= allowed


def test_the_process_of_a_replay_reaches_the_store_and_nothing_else() -> None:
    code = """
import socket, subprocess, sys
from contracts.aside import confine
there, elsewhere = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
confine("redis://localhost:%d/0" % there.getsockname()[1])
socket.create_connection(there.getsockname())
for forbidden in (lambda: socket.create_connection(elsewhere.getsockname()), lambda: subprocess.run(["true"])):
    try:
        forbidden()
    except PermissionError:
        print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.split() == ["refused", "refused"]


async def compute(api: Api, body: dict[str, Any], key: str | None = None) -> dict[str, Any]:
    """Ask for a replay that computes, and wait for what comes of it."""
    made = await api.call("POST", "/v1/replays", json=body, key=key)
    assert made.status == 202, made.body
    found = made.body
    while found["status"] == "running":
        await asyncio.sleep(0.02)
        found = (await api.get(made.body["urls"]["self"], key=key)).body
    return dict(found)


def sleepers() -> list[int]:
    """Return the processes of `tests.ingest.sleeper` that this one started."""
    mine = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    pids = [int(pid) for pid in Path(mine).read_text().split()]
    return [pid for pid in pids if b"tests.ingest.sleeper" in Path(f"/proc/{pid}/cmdline").read_bytes()]


_reached: list[Any] | None = None


def _note(event: str, args: tuple[Any, ...]) -> None:
    if _reached is not None and event == "socket.connect":
        _reached.append(args[1] if isinstance(args[1], str) else args[1][:2])


sys.addaudithook(_note)


@contextmanager
def connections() -> Iterator[list[Any]]:
    """Note where this process connects to meanwhile."""
    global _reached
    _reached = found = []
    try:
        yield found
    finally:
        _reached = None


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
