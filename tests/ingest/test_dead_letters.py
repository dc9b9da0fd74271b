"""Dead letters: listed, taken back to work at a rate and within limits, once each, or off the list; whoever dies."""

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from contracts import events as ev
from contracts.dead_letters import LetterFilter, Operation
from contracts.store import keys, tasks
from services.ingest.dead_letters.worker import LEASE_MS, LetterWorker
from services.ingest.handlers.read import JobReader
from tests.ingest.api import ADMIN_KEY, Api
from tests.ingest.test_events import pages
from tests.scheduler.rig import eventually
from tests.servers import slow_each_time
from tests.store.play import Play

DLQ = "/admin/v1/dlq"
WHY = "the host is back"


async def fails(api: Api, play: Play, code: str = "worker_lost", **fields: Any) -> str:
    """A job whose attempts are used up."""
    job_id = await api.job(**fields)
    return await fails_again(api, play, job_id, code)


async def fails_again(api: Api, play: Play, job_id: str, code: str = "worker_lost") -> str:
    history = await api.store.jobs.history("default", job_id, limit=0)
    assert history is not None
    offer = await play.offers(job_id, fence=history.state.fence)
    attempt, started = play.starting(offer._replace(tenant_id=history.state.tenant_id))
    await api.store.attempts.start(attempt, started)
    error = ev.ErrorFacts(code=code, retryable=True)
    failed = ev.JobAttemptFailed(error=error, attempt=1, will_retry=False)
    end = ev.JobFailed(error=error, attempts=1, dead_lettered=True)
    assert (await api.store.attempts.emit(attempt, [failed, end], closes=True)).applied
    return job_id


async def act(api: Api, verb: str, **asked: Any) -> Any:
    key = asked.pop("key", None)
    headers = {} if key is None else {"Idempotency-Key": key}
    return await api.admin("POST", f"{DLQ}/{verb}", json={"reason": WHY} | asked, headers=headers)


async def listed(api: Api, query: str = "") -> list[str]:
    found = await pages(api, f"{DLQ}?limit=2{query}", key=ADMIN_KEY)
    return [each["id"] for each in found]


async def over(api: Api, operation_id: str) -> dict[str, Any]:
    """The operation once it has ended."""

    async def look() -> Any:
        return (await api.admin("GET", f"{DLQ}/operations/{operation_id}")).body

    return dict(await eventually(look, lambda told: told["state"] != "in_progress"))


async def types(api: Api, job_id: str) -> list[str]:
    history = await api.store.jobs.history("default", job_id)
    assert history is not None
    return [entry.type for entry in history.entries]


async def test_dead_letters_are_listed_by_tenant_model_code_and_time(api: Api, play: Play) -> None:
    other = await api.tenant("t_b")
    first = await fails(api, play)
    second = await fails(api, play, "out_of_memory", model="echo", input={})
    third = await fails(api, play, key=other)
    await api.job()

    assert await listed(api) == [third, second, first]
    assert await listed(api, "&tenantId=t_b") == [third]
    assert await listed(api, "&code=out_of_memory&model=echo") == [second]
    (one,) = [each for each in await pages(api, f"{DLQ}?limit=2", key=ADMIN_KEY) if each["id"] == second]
    later = one["failedAt"].replace("+", "%2B")
    assert await listed(api, f"&since={later}") == [third, second]
    assert await listed(api, f"&until={later}") == [first]
    shown = (await api.admin("GET", f"{DLQ}/{second}")).body
    assert (shown["code"], shown["job"]["deadLettered"], shown["contentErased"]) == ("out_of_memory", True, False)
    assert (await api.get(DLQ)).status == 403
    assert [each["id"] for each in (await api.get("/v1/jobs?deadLettered=true")).body["data"]] == [second, first]
    dry = (await act(api, "redrive", filter={"tenantId": "t_a"}, dryRun=True, reason="")).body
    assert (dry["matched"], dry["sample"], dry["id"]) == (2, [second, first], None)
    assert await listed(api) == [third, second, first]
    assert (await act(api, "redrive", filter={}, reason=" ")).pointers == ["/reason"]


async def test_no_time_makes_more_of_them_fit_or_an_operation_that_cannot_be_shown(api: Api, play: Play) -> None:
    """An end in 1970 was taken for none; a time that is in no year of UTC was kept and shown by nobody again."""
    job_id = await fails(api, play)
    for times, count in (
        ({"until": "1970-01-01T00:00:00Z"}, 0), ({"until": "1969-12-31T23:59:59Z"}, 0),
        ({"since": "0001-01-01T00:00:00Z"}, 1), ({"until": "9999-12-31T23:59:59Z"}, 1),
    ):  # fmt: skip
        assert (await act(api, "discard", filter=times, dryRun=True)).body["matched"] == count, times
        assert await listed(api, "".join(f"&{name}={text}" for name, text in times.items())) == [job_id] * count
    for time in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        assert (await act(api, "redrive", filter={"since": time, "code": "none"})).pointers == ["/filter/since"]
    asked = await act(api, "redrive", filter={"since": "0001-01-01T00:00:00Z", "code": "none"})
    assert asked.body["filter"]["since"] is None
    assert len((await api.admin("GET", f"{DLQ}/operations")).body["data"]) == 1
    for why in ("a\nb", "a\x9b31m", "a\u2028b", "\u202egnp", "x" * 513):
        assert (await act(api, "discard", ids=[job_id], reason=why)).pointers == ["/reason"], why
    assert await listed(api) == [job_id]


async def test_a_redriven_job_runs_once_more_under_its_own_tenant_and_attempts(api: Api, play: Play) -> None:
    """Also when the request is repeated, with its key or without one, and when the job fails again meanwhile."""
    job_id = await fails(api, play, policy={"maxAttempts": 2}, priority="high")
    asked = [await act(api, "redrive", ids=[job_id], key="again") for _ in range(2)]
    assert [answer.status for answer in asked] == [202, 202]
    assert asked[0].body["id"] == asked[1].body["id"]
    assert (await act(api, "redrive", ids=[job_id], key="again", ratePerSecond=1.0)).code == "idempotency_mismatch"
    done = await over(api, asked[0].body["id"])

    assert (done["done"], done["failed"], done["reason"]) == (1, 0, WHY)
    job = (await api.get(f"/v1/jobs/{job_id}")).body
    assert (job["status"], job["priority"], job["maxAttempts"], job["deadLettered"]) == ("queued", "high", 3, False)
    assert await types(api, job_id) == [
        "job.created", "job.assigned", "job.started", "job.attempt_failed", "job.failed", "job.redriven", "job.retried",
    ]  # fmt: skip
    assert await listed(api) == []
    assert (await api.get("/v1/limits")).body["use"]["default"]["queuedJobs"] == 1
    assert (await api.admin("GET", f"{DLQ}/{job_id}")).code == "dead_letter_not_found"

    await fails_again(api, play, job_id)
    assert (await act(api, "redrive", ids=[job_id], key="again")).body["done"] == 1
    assert await listed(api) == [job_id]
    events = await _of_type(api, "dlq.requested")
    assert [each["reason"] for each in events] == [WHY]


async def test_what_was_in_hand_when_a_process_died_is_done_once_by_the_next(api: Api, play: Play) -> None:
    """The first one dies after it wrote and before it said so; the second one finds it in the job's own events."""
    jobs = [await fails(api, play) for _ in range(2)]
    now_ms = await api.store.dead_letters.now_ms()
    wanted = LetterFilter(until_ms=now_ms + 1)
    operation = Operation("op_x", "redrive", "key_1", WHY, 100.0, wanted, asked_ms=now_ms)
    worker = LetterWorker(api.service.context, JobReader(api.service.context))
    worker._lease_s = 1e12
    in_hand = replace(operation, hand=tuple(jobs))
    for job_id in jobs[:1]:
        assert await worker._one(in_hand, job_id) == "done"
    await fails_again(api, play, jobs[0])  # after it was asked for: that is another matter
    late = await fails(api, play)
    await api.store.client.hset(keys.letter_work(keys.SYSTEM), "op_x", in_hand.to_json())
    await api.store.client.hset(keys.letter_leases(keys.SYSTEM), "op_x", f"dead {now_ms + LEASE_MS}")
    assert await api.store.letter_work.claim(keys.SYSTEM, "other", LEASE_MS) is None
    await api.store.client.hdel(keys.letter_leases(keys.SYSTEM), "op_x")

    done = await over(api, "op_x")

    assert (done["done"], done["failed"]) == (2, 0)
    assert [(await types(api, job_id)).count("job.retried") for job_id in jobs] == [1, 1]
    assert await listed(api) == [late, jobs[0]]


async def test_two_processes_with_one_operation_make_one_run(api: Api, play: Play) -> None:
    """One stood still for longer than its lease, and goes on beside the other."""
    job_id = await fails(api, play)
    wanted = LetterFilter(until_ms=await api.store.dead_letters.now_ms() + 1)
    operation = Operation("op_y", "redrive", "key_1", WHY, 100.0, wanted, hand=(job_id,))
    workers = [LetterWorker(api.service.context, JobReader(api.service.context)) for _ in range(3)]

    assert await asyncio.gather(*(each._one(operation, job_id) for each in workers)) == ["done"] * 3
    assert (await types(api, job_id)).count("job.retried") == 1

    other_id = await fails(api, play)
    until_ms = await api.store.dead_letters.now_ms() + 1
    two = [replace(operation, id=f"op_{name}", wanted=LetterFilter(until_ms=until_ms)) for name in "ab"]
    outcomes = await asyncio.gather(*(each._one(one, other_id) for each, one in zip(workers, two, strict=False)))
    assert sorted(outcomes) == ["done", "not_dead_lettered"]
    assert (await types(api, other_id)).count("job.retried") == 1


async def test_who_has_no_room_waits_and_does_not_hold_up_the_others(api: Api, play: Play) -> None:
    small = await api.tenant("t_small", queuedJobs=1)
    stuck = await fails(api, play, key=small)
    waiting = await api.job(key=small)
    free = await fails(api, play)

    asked = await act(api, "redrive", filter={}, ratePerSecond=1000.0)
    told = await eventually(
        lambda: _told(api, asked.body["id"]), lambda told: told["done"] == 1 and told["deferred"] == 1
    )  # fmt: skip

    assert told["state"] == "in_progress"
    assert await listed(api) == [stuck]
    assert (await api.get(f"/v1/jobs/{free}")).body["status"] == "queued"
    later = await fails(api, play)  # one that waits does not hold up the operations after it either
    assert (await over(api, (await act(api, "redrive", ids=[later])).body["id"]))["done"] == 1
    await api.call("POST", f"/v1/jobs/{waiting}/cancel", key=small)
    stopped = await api.admin("POST", f"{DLQ}/operations/{asked.body['id']}/stop", json={"reason": "no more"})
    assert stopped.body["state"] == "stopped"
    again = await act(api, "redrive", ids=[stuck])
    assert (await over(api, again.body["id"]))["done"] == 1


async def test_one_that_cannot_be_read_holds_up_no_other(api: Api, play: Play) -> None:
    jobs = [await fails(api, play) for _ in range(3)]
    await api.store.client.hset(keys.job("default", jobs[0]), mapping={"a": "many", "st": "broken"})

    done = await over(api, (await act(api, "redrive", filter={})).body["id"])

    assert (done["done"], done["failures"]) == (2, [{"id": jobs[0], "code": "unreadable"}])
    assert await listed(api) == [jobs[0]]


async def test_only_operations_under_way_are_too_many(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Those of a day that were over were counted, so that a script was refused for the rest of it."""
    monkeypatch.setattr(tasks, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(tasks, "MOST_KNOWN", 3)
    ids = [(await act(api, "discard", ids=["job_x"])).body["id"]]
    for _ in range(3):
        await over(api, ids[-1])
        ids.append((await act(api, "discard", ids=["job_x"])).body["id"])
    await over(api, ids[-1])

    known = [each["id"] for each in (await api.admin("GET", f"{DLQ}/operations")).body["data"]]
    assert sorted(known) == sorted(ids[1:])  # the first made room
    slow = [await act(api, "discard", ids=[f"job_{n}", "job_y"], ratePerSecond=0.01) for n in range(3)]
    assert [each.status for each in slow] == [202, 202, 429]


async def test_a_discarded_one_is_never_listed_again_and_keeps_its_events(api: Api, play: Play) -> None:
    job_id = await fails(api, play)
    done = await over(api, (await act(api, "discard", filter={"code": "worker_lost"})).body["id"])

    assert done["done"] == 1
    assert await listed(api) == []
    job = (await api.get(f"/v1/jobs/{job_id}")).body
    assert (job["status"], job["deadLettered"], job["error"]["code"]) == ("failed", False, "worker_lost")
    assert (await types(api, job_id))[-2:] == ["job.failed", "job.discarded"]
    again = await over(api, (await act(api, "redrive", ids=[job_id, "job_x"])).body["id"])
    assert {each["code"] for each in again["failures"]} == {"not_dead_lettered", "job_not_found"}
    assert (await api.get(f"/v1/jobs/{job_id}?sequence=5")).body["deadLettered"] is True


async def test_what_was_erased_or_forgotten_says_so_and_is_not_redriven(api: Api, play: Play) -> None:
    erased, forgotten = await fails(api, play), await fails(api, play)
    await api.store.client.delete(keys.body("default", erased))
    await api.store.client.delete(keys.job("default", forgotten), keys.body("default", forgotten))
    await api.store.client.set(keys.admitted("default", forgotten), "1-0")

    done = await over(api, (await act(api, "redrive", ids=[erased])).body["id"])

    assert done["failures"] == [{"id": erased, "code": "data_erased"}]
    assert (await api.admin("GET", f"{DLQ}/{erased}")).body["contentErased"] is True
    assert (await api.admin("GET", f"{DLQ}/{forgotten}")).code == "data_erased"


async def test_many_are_looked_at_in_bounded_pages_and_hold_up_no_command(api: Api) -> None:
    """Field case 87: 200,000 were tried by hand; here as many as several pages, all of one millisecond or two."""
    client: Any = api.store.client
    job = {"s": "failed", "t": "t_a", "m": "draw@1", "ec": "worker_lost", "n": "2", "p": "5-0", "dl": "1", "da": "5"}
    ids = [f"job_{number:026d}aa" for number in range(1_250)]
    pipe = client.pipeline(transaction=False)
    for number, job_id in enumerate(ids):
        pipe.hset(keys.job("default", job_id), mapping=job)
        pipe.zadd(keys.dead_letters("default"), {job_id: 5 + number % 2})
    await pipe.execute()

    async def look() -> None:
        found = await pages(api, DLQ, limit=100, key=ADMIN_KEY)
        none = (await api.admin("GET", f"{DLQ}?tenantId=t_nobody")).body
        too_many = await api.admin("GET", f"{DLQ}?limit=101")

        assert [each["id"] for each in found] == [*ids[1::2][::-1], *ids[::2][::-1]]
        assert (none["data"], none["hasMore"]) == ([], True)  # a call looks at so many, and says how to go on
        assert (await act(api, "redrive", filter={}, dryRun=True)).body["matched"] == 1_000
        assert too_many.code == "bad_parameter"

    assert await slow_each_time(client, look) == set()


async def test_the_rate_is_kept(api: Api, play: Play) -> None:
    """However many there are, one follows the other after a pause; a slow rate keeps its claim meanwhile."""
    jobs = [await fails(api, play) for _ in range(3)]
    clock_s = 0.0

    async def passes(_: object, seconds: float) -> None:
        nonlocal clock_s
        clock_s += max(0.0, seconds)

    worker = LetterWorker(api.service.context, JobReader(api.service.context), clock_s=lambda: clock_s, wait=passes)
    wanted = LetterFilter(until_ms=await api.store.dead_letters.now_ms() + 1)
    operation = Operation("op_z", "redrive", "key_1", WHY, 0.5, wanted, ids=tuple(jobs))
    await api.store.client.hset(keys.letter_work(keys.SYSTEM), "op_z", operation.to_json())
    assert await api.store.letter_work.claim(keys.SYSTEM, worker.who, LEASE_MS) is not None
    await worker.work(operation, asyncio.Event())

    assert clock_s >= 4.0
    assert [(await types(api, job_id)).count("job.redriven") for job_id in jobs] == [1, 1, 1]


async def _told(api: Api, operation_id: str) -> Any:
    return (await api.admin("GET", f"{DLQ}/operations/{operation_id}")).body


async def _of_type(api: Api, name: str) -> list[dict[str, Any]]:
    entries: Any = await api.store.client.xrange(keys.log("default"))
    return [orjson.loads(fields[b"d"]) for _, fields in entries if fields[b"t"] == name.encode()]
