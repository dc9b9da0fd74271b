"""PATCH /v1/jobs/{id}: priority and metadata while the job has not ended."""

import asyncio

import pytest

from contracts import events as ev
from contracts.api import JobPatch
from contracts.store.attempts import Attempt
from services.ingest.handlers.change import MOST_CHANGES, ChangeHandler, changes_of
from services.ingest.handlers.read import JobReader
from services.ingest.tenancy import Caller
from services.notifier.planning.job_body import read_body
from tests.ingest.api import Answer, Api, log_length
from tests.store.play import POOL, Play


async def change(
    api: Api, job_id: str, if_match: str | None = None, key: str | None = None, **fields: object
) -> Answer:
    headers = {} if if_match is None else {"If-Match": if_match}
    return await api.call("PATCH", f"/v1/jobs/{job_id}", key=key, json=fields, headers=headers)


async def running(api: Api, play: Play, job_id: str) -> Attempt:
    attempt, started = play.starting(await play.offers(job_id))
    await api.store.attempts.start(attempt, started)
    return attempt


async def test_priority_and_metadata_change_in_one_step_and_the_words_stay_out_of_the_log(api: Api, play: Play) -> None:
    job_id = await api.job(metadata={"cart": "9", "shop": "a"})

    changed = await change(api, job_id, priority="urgent", metadata={"cart": "seventeen"})

    assert (changed.status, changed.headers["etag"]) == (200, '"3"')
    assert (changed.body["priority"], changed.body["metadata"]) == ("urgent", {"cart": "seventeen"})
    assert (await api.get(f"/v1/jobs/{job_id}")).body == changed.body
    assert await play.types(job_id) == ["job.created", "job.priority_changed", "job.metadata_changed"]
    events = (await api.get(f"/v1/jobs/{job_id}/events")).body["data"]
    raised, renamed = events[1]["data"], events[2]["data"]
    assert (raised["priority"], raised["previous"]) == ("urgent", "normal")
    assert renamed["keys"] == ["cart", "shop"]
    assert raised["by"].startswith("key/key_")
    assert events[1]["source"] == events[2]["source"] == "ingest"
    assert "seventeen" not in str(events)


async def test_a_change_that_changes_nothing_writes_nothing(api: Api) -> None:
    job_id = await api.job(metadata={"cart": "9"})
    await change(api, job_id, priority="low")
    before = await log_length(api)

    answers = [
        await change(api, job_id, priority="low"),
        await change(api, job_id, metadata={"cart": "9"}),
        await change(api, job_id),
        await change(api, job_id, priority=None, metadata=None),
    ]

    assert [answer.status for answer in answers] == [200] * 4
    assert await log_length(api) == before


async def test_the_job_is_still_shown_as_it_was(api: Api) -> None:
    job_id = await api.job(metadata={"n": "0"})
    for number in (1, 2):
        await change(api, job_id, metadata={"n": str(number)}, priority=("low", "high")[number - 1])

    shown = [(await api.get(f"/v1/jobs/{job_id}?sequence={n}")).body for n in range(1, 6)]

    assert [(job["priority"], job["metadata"]["n"]) for job in shown] == [
        ("normal", "0"), ("low", "0"), ("low", "1"), ("high", "1"), ("high", "2"),
    ]  # fmt: skip
    found = await api.get("/v1/jobs?metadata.n=2&priority=high")
    assert [job["id"] for job in found.body["data"]] == [job_id]
    assert (await api.get("/v1/jobs?metadata.n=0")).body["data"] == []


async def test_what_a_webhook_subscribes_to_changes_for_what_comes_after(api: Api, play: Play) -> None:
    """Field case 98: every name is checked, and the log says from which event on the new list holds."""
    job_id = await api.job(webhookUrl="https://app.example/hook", webhookEvents=["job.completed"], metadata={"n": "0"})

    changed = await change(api, job_id, metadata={"n": "1"}, webhookEvents=["job.progress", "job.failed"])
    again = await change(api, job_id, webhookEvents=["job.failed", "job.progress"])

    assert (changed.status, changed.headers["etag"], again.headers["etag"]) == (200, '"3"', '"3"')
    assert await play.types(job_id) == ["job.created", "job.metadata_changed", "job.webhook_changed"]
    history = await play.store.jobs.history(POOL, job_id, with_body=True)
    assert history is not None
    assert [entry.hooked for entry in history.entries] == [False, False, True]
    body = read_body(job_id, history.body)
    assert [body.webhook_events(n) for n in (1, 2, 3)] == [["job.completed"]] * 2 + [["job.progress", "job.failed"]]
    assert [body.metadata(n) for n in (1, 2, 3)] == [{"n": "0"}, {"n": "1"}, {"n": "1"}]


async def test_a_running_attempt_marks_by_the_new_list_though_it_knows_the_old_one(api: Api, play: Play) -> None:
    """Field case 98: what is newly wanted does not pass unseen because the worker was told another list."""
    job_id = await api.job(webhookUrl="https://app.example/hook", webhookEvents=["job.completed"])
    attempt = await running(api, play, job_id)
    await api.store.attempts.emit(attempt, [ev.JobProgress(progress=10)])

    await change(api, job_id, webhookEvents=["job.progress"])
    await api.store.attempts.emit(attempt, [ev.JobProgress(progress=20)])

    history = await play.store.jobs.history(POOL, job_id)
    assert history is not None
    marked = {entry.type: entry.hooked for entry in history.entries}
    assert [entry.hooked for entry in history.entries if entry.type == "job.progress"] == [False, True]
    assert (marked["job.started"], marked["job.webhook_changed"]) == (False, True)


async def test_if_match_guards_what_the_caller_has_not_seen(api: Api) -> None:
    job_id = await api.job()
    first = (await api.get(f"/v1/jobs/{job_id}")).headers["etag"]
    raised = await change(api, job_id, first, priority="high")
    assert raised.status == 200

    for stale in (first, 'W/"2"', "2", '"999", "1"', ""):
        refused = await change(api, job_id, stale, priority="low")
        assert (refused.status, refused.code, refused.headers["etag"]) == (409, "version_mismatch", '"2"'), stale
    for good in ('"1", "2"', "*"):
        assert (await change(api, job_id, good, metadata={"for": good})).status in (200, 409)
    assert (await api.get(f"/v1/jobs/{job_id}")).body["metadata"] == {"for": "*"}


async def test_two_changes_under_one_version_are_one(api: Api, play: Play) -> None:
    job_id = await api.job()

    answers = await asyncio.gather(*(change(api, job_id, '"1"', metadata={"by": str(number)}) for number in range(10)))

    assert sorted(answer.status for answer in answers) == [200] + [409] * 9
    assert (await play.types(job_id)).count("job.metadata_changed") == 1


async def test_a_change_decided_on_an_old_state_is_not_applied(api: Api, play: Play) -> None:
    """Another change comes between the decision and the write: what was decided about would be overwritten unseen."""
    job_id = await api.job()
    reader = JobReader(api.service.context)
    old = await reader.details(await reader.need(Caller("t_a", "key_x", frozenset()), job_id))
    wanted = JobPatch(metadata={"late": "1"})
    await change(api, job_id, metadata={"first": "1"})

    applied = await ChangeHandler(api.service.context, reader)._write(old, wanted, changes_of(old, wanted, "key/x"))

    assert not applied
    assert (await api.get(f"/v1/jobs/{job_id}")).body["metadata"] == {"first": "1"}


async def test_changes_without_a_guard_all_happen_one_after_the_other(
    api: Api, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take turns: none depends on how often it may try."""
    monkeypatch.setattr("services.ingest.handlers.change.CHANGE_TRIES", 1)
    job_id = await api.job()

    answers = await asyncio.gather(*(change(api, job_id, metadata={"by": str(n)}) for n in range(40)))

    assert {answer.status for answer in answers} == {200}
    assert (await play.types(job_id)).count("job.metadata_changed") == 40


async def test_a_running_job_can_be_changed_and_its_result_is_kept(api: Api, play: Play) -> None:
    job_id = await api.job()
    attempt = await running(api, play, job_id)
    line = b'\n{"result":{"text":"x"}}'

    assert (await change(api, job_id, priority="low", metadata={"a": "1"})).status == 200
    await api.store.attempts.emit(attempt, [ev.JobCompleted()], line=line, closes=True)

    shown = (await api.get(f"/v1/jobs/{job_id}")).body
    assert (shown["status"], shown["priority"], shown["metadata"]) == ("completed", "low", {"a": "1"})
    assert (await api.get(f"/v1/jobs/{job_id}/result")).body["result"] == {"text": "x"}


async def test_a_job_that_has_ended_is_left_as_it_is(api: Api) -> None:
    job_id = await api.job()
    await api.call("POST", f"/v1/jobs/{job_id}/cancel")
    before = await log_length(api)

    refused = await change(api, job_id, priority="low")

    assert (refused.status, refused.code) == (409, "already_terminal")
    assert await log_length(api) == before


async def test_a_foreign_job_is_as_unknown_as_one_that_never_was(api: Api) -> None:
    """Field cases 4 and 10: nothing tells that the id exists."""
    other = await api.tenant("t_b")
    job_id = await api.job()

    foreign = await change(api, job_id, '"1"', key=other, priority="low")
    unknown = await change(api, job_id[:-4] + "zz" + job_id[-2:], '"1"', key=other, priority="low")

    assert (foreign.status, foreign.code) == (unknown.status, unknown.code) == (404, "job_not_found")
    assert (await api.get(f"/v1/jobs/{job_id}")).body["priority"] == "normal"


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"priority": "urgentest"}, "/priority"),
        ({"priority": 1}, "/priority"),
        ({"prompt": "x"}, "/prompt"),
        ({"metadata": {"a b": "1"}}, "/metadata/a b"),
        ({"metadata": {"a": 1}}, "/metadata/a"),
        ({"metadata": {str(n): "" for n in range(17)}}, "/metadata"),
        ({"webhookEvents": ["job.done"]}, "/webhookEvents/0"),
        ({"webhookEvents": []}, "/webhookEvents"),
        ({"webhookEvents": ["job.completed"]}, "/webhookEvents"),
    ],
)
async def test_a_bad_change_is_422_with_its_place(api: Api, fields: dict[str, object], pointer: str) -> None:
    job_id = await api.job()

    refused = await change(api, job_id, **fields)

    assert (refused.status, refused.pointers) == (422, [pointer])


async def test_the_metadata_of_one_job_cannot_grow_without_end(api: Api) -> None:
    """Field case 11: each version stays in the body, so there is a last one."""
    job_id = await api.job()
    context = api.service.context
    line = b"".join(b'\n{"metadata":{"n":"%d"},"sequence":1}' % n for n in range(MOST_CHANGES))
    await context.store.client.append(f"hr:{{{POOL}}}:body:{job_id}", line)

    refused = await change(api, job_id, metadata={"n": "more"}, priority="low")

    assert (refused.status, refused.pointers) == (422, ["/metadata"])
    assert (await change(api, job_id, priority="low")).status == 200
