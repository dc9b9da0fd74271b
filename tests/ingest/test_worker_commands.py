"""Commands to workers: one event with who and why, and one message to the worker, in one write."""

from typing import Any

import orjson
import pytest

from contracts import events as ev
from contracts.store import Store, keys
from tests.ingest.api import Api
from tests.store.play import Play


async def log_of(store: Store) -> list[dict[str, Any]]:
    entries = await store.client.xrange(keys.log("default"))
    told = [orjson.loads(fields[b"d"]) for _, fields in entries if fields[b"t"] == b"worker.commanded"]
    assert all(each.pop("ip") == "127.0.0.1" and each.pop("userAgent") for each in told)
    return told


async def told(store: Store, worker: str) -> list[dict[str, Any]]:
    entries = await store.client.xrange(keys.work("default", worker))
    return [orjson.loads(fields[b"d"]) for _, fields in entries if fields[b"kind"] == b"command"]


async def has_device(api: Api, worker: str) -> None:
    models = [{"model": "gone@7", "state": "idle"}]  # the file does not name it any more
    devices = [
        {
            "uuid": "cpu-h-0-0",
            "kind": "cpu",
            "bytesTotal": 1,
            "bytesReserved": 0,
            "slots": [{"index": 0}],
            "models": models,
        }
    ]
    await api.store.client.hset(keys.worker("default", worker), mapping={"devices": orjson.dumps(devices)})


async def test_a_command_is_an_event_and_a_message(api: Api, play: Play) -> None:
    await has_device(api, play.worker)
    path = f"/admin/v1/workers/{play.worker}"
    drained = await api.admin("POST", path + "/drain", json={"deadlineSeconds": 1.5, "reason": "a new driver"})
    body = {"model": "echo", "device": "cpu-h-0-0", "reason": "a demonstration"}
    loaded = await api.admin("POST", path + "/load-model", json=body)
    evicted = await api.admin("POST", path + "/evict-model", json={"model": "gone@7"})

    assert [answer.status for answer in (drained, loaded, evicted)] == [202, 202, 202]
    assert drained.body["id"] == play.worker
    assert await log_of(api.store) == [
        {
            "workerId": play.worker,
            "command": "drain",
            "deadlineMs": 1500,
            "reason": "a new driver",
            "by": "operator",
        },
        {
            "workerId": play.worker,
            "command": "load_model",
            "model": "echo@1",
            "device": "cpu-h-0-0",
            "reason": "a demonstration",
            "by": "operator",
        },
        {"workerId": play.worker, "command": "evict_model", "model": "gone@7", "reason": "", "by": "operator"},
    ]
    assert [(each["command"], each["model"], each["deadlineMs"]) for each in await told(api.store, play.worker)] == [
        ("drain", None, 1500),
        ("load_model", "echo@1", None),
        ("evict_model", "gone@7", None),
    ]


async def test_what_is_so_already_writes_nothing(api: Api, play: Play) -> None:
    path = f"/admin/v1/workers/{play.worker}"
    assert (await api.admin("POST", path + "/undrain", json={})).status == 200
    draining = ev.WorkerDraining(worker_id=play.worker)
    await api.store.attempts.announce("default", play.worker, draining, "op1", state="draining")
    assert (await api.admin("POST", path + "/drain", json={})).status == 200
    assert await log_of(api.store) == []
    assert (await api.admin("POST", path + "/drain", json={"deadlineSeconds": 0})).status == 202
    assert (await api.admin("POST", path + "/undrain", json={})).status == 202
    assert [each["command"] for each in await log_of(api.store)] == ["drain", "undrain"]


@pytest.mark.parametrize(
    ("worker", "verb", "body", "status", "code"),
    [
        ("wrk_none", "drain", {}, 404, "worker_not_found"),
        ("", "load-model", {"model": "nothing"}, 404, "model_not_found"),
        ("", "evict-model", {"model": "nothing"}, 404, "model_not_found"),
        ("", "evict-model", {"model": "echo@9"}, 404, "model_not_found"),
        ("", "load-model", {"model": "echo", "device": "cuda:9"}, 422, "invalid_input"),
        ("", "load-model", {}, 422, "invalid_input"),
        ("", "drain", {"deadlineSeconds": -1}, 422, "invalid_input"),
        ("", "drain", {"deadline": 1}, 422, "unknown_field"),
    ],
)
async def test_what_is_wrong_is_said_and_writes_nothing(
    api: Api, play: Play, worker: str, verb: str, body: dict[str, Any], status: int, code: str
) -> None:
    answer = await api.admin("POST", f"/admin/v1/workers/{worker or play.worker}/{verb}", json=body)
    assert (answer.status, answer.body["code"]) == (status, code)
    assert ("known are draw@1, echo@1, edit@1" in answer.body["detail"]) is (code == "model_not_found")
    assert await log_of(api.store) == []
    assert await told(api.store, play.worker) == []
