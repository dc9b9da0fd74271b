"""Jobs that give another one's result again: pinned to what it ran with, or refused with what is gone by name."""

from collections.abc import Sequence
from typing import Any

import orjson

from contracts import events as ev
from contracts.reproduction import Pins, result_distance, verdict
from contracts.store import keys
from services.gpu_worker import settlement
from services.gpu_worker.slots.outcome import Outcome, Verdict
from tests.ingest.api import Answer, Api
from tests.store.play import Play

FILES, CODE = "f" * 64, "headrace/1 numpy/2"
MANIFEST = ev.Manifest(model_hash=FILES, code_version=CODE, device="cpu/x86_64")


async def completed(api: Api, play: Play, manifest: ev.Manifest | None = MANIFEST, **fields: Any) -> str:
    """Return a job that has completed, with a result and its manifest."""
    job_id = await api.job(**fields)
    attempt, started = play.starting(await play.offers(job_id))
    await api.store.attempts.start(attempt, started)
    said = settlement.completed(Outcome(Verdict.COMPLETED, result={"n": 1}), ev.JobCompleted(manifest=manifest), {})
    await api.store.attempts.emit(attempt, said.events, line=said.line, closes=True)
    return job_id


async def serve(api: Api, play: Play, *pins: Sequence[str], model: str = "draw@1") -> None:
    """Let the worker say what it would run."""
    said = {model: list(pins[0])} if pins else {}
    await api.store.attempts.heartbeat("default", play.worker, [], pins=orjson.dumps(said).decode())
    await api.store.client.hset(keys.worker("default", play.worker), "devices", '[{"bytesTotal": 0}]')
    await api.service.context.capacity.look("default")


async def reproduce(api: Api, job_id: str, **more: Any) -> Answer:
    return await api.call("POST", f"/v1/jobs/{job_id}/reproduce", **more)


async def test_the_same_work_is_asked_for_again_and_the_first_job_is_left_as_it_was(api: Api, play: Play) -> None:
    asked: dict[str, Any] = {"priority": "high", "input": {"seed": 7}}
    first = await completed(api, play, webhookUrl="https://app.example/hook", metadata={"cart": "9"}, **asked)
    await serve(api, play, (FILES, CODE))
    before = (await api.get(f"/v1/jobs/{first}")).body, await api.store.client.dump(keys.job("default", first))

    made = await reproduce(api, first, headers={"Idempotency-Key": '"again"'})
    again = await reproduce(api, first, headers={"Idempotency-Key": '"again"'})

    job, was = made.body, before[0]
    assert (made.status, again.status, again.body["id"]) == (201, 200, job["id"])
    for name in ("model", "prompt", "input", "userId", "priority"):
        assert job[name] == was[name]
    assert (job["metadata"], job["reproduction"]) == ({}, {"of": first, "match": None, "distance": None, "changed": []})
    assert was["manifest"] | {"seed": None, "files": None} == {
        "modelHash": FILES, "codeVersion": CODE, "device": "cpu/x86_64", "batchSize": 1, "seed": None, "files": None,
    }  # fmt: skip
    assert was["manifest"]["seed"] == was["input"]["seed"]
    history = await api.store.jobs.history("default", job["id"])
    assert history is not None
    created = history.entries[0].event()
    assert isinstance(created, ev.JobCreated)
    assert (created.reproduces, created.webhook_events, created.max_batch) == (first, None, None)
    assert (
        (await api.get(f"/v1/jobs/{first}")).body,
        await api.store.client.dump(keys.job("default", first)),
    ) == before
    other = await completed(api, play, **asked)  # the same work of another job
    assert (await reproduce(api, other, headers={"Idempotency-Key": '"again"'})).code == "idempotency_mismatch"


async def test_what_is_gone_is_named(api: Api, play: Play) -> None:
    first = await completed(api, play)

    async def gone(*pins: str) -> list[str]:
        await serve(api, play, *([pins] if pins else []))
        answer = await reproduce(api, first)
        assert (answer.status, answer.code) == (409, "not_reproducible")
        return answer.pointers

    assert await gone() == ["/manifest/modelHash", "/manifest/codeVersion"]
    assert await gone("0" * 64, CODE) == ["/manifest/modelHash"]
    assert await gone(FILES, "headrace/2") == ["/manifest/codeVersion"]
    older = await completed(api, play, manifest=None)
    assert (await reproduce(api, older)).pointers == ["/manifest"]
    assert (await reproduce(api, await api.job())).code == "not_reproducible"
    await api.store.client.delete(keys.body("default", first))
    assert (await reproduce(api, first)).code == "data_erased"


async def test_it_is_admitted_like_any_job_and_only_its_tenants(api: Api, play: Play) -> None:
    first = await completed(api, play)
    await serve(api, play, (FILES, CODE))
    stranger = await api.tenant("t_b")
    await api.admin("PATCH", "/admin/v1/tenants/t_a", json={"limits": {"queuedJobs": 1}})

    assert (await reproduce(api, first, key=stranger)).code == "job_not_found"
    assert (await reproduce(api, first, key=await api.new_key("t_a", ["jobs:read"]))).code == "missing_scope"
    assert (await reproduce(api, first)).status == 201
    assert (await reproduce(api, first)).body["violated-policies"] == ["queuedJobs"]


def test_a_verdict_names_what_was_another_one_after_all() -> None:
    pins = Pins(job="job_1", pool="default", manifest=MANIFEST)
    moved = MANIFEST.model_copy(update={"device": "cuda/L4", "batch_size": 2})

    found = [verdict(pins, MANIFEST, [0.0], is_equal=True), verdict(pins, moved, [0.0, 0.004], is_equal=False)]
    found += [verdict(pins, MANIFEST, [0.004, each], is_equal=False) for each in (0.3, None)]
    found += [verdict(pins, MANIFEST, [0.0], is_equal=False)]  # shows the same, is written otherwise

    assert [(one.match, one.distance, one.changed) for one in found] == [
        ("exact", 0.0, None), ("close", 0.004, ("device", "batchSize")), ("different", 0.3, None),
        ("different", None, None), ("close", 0.0, None),
    ]  # fmt: skip
    assert result_distance({"a": [1.0, True]}, {"a": [1.0, 1]}) == 1.0
    assert result_distance({"a": 1}, {"b": 1}) == 1.0
