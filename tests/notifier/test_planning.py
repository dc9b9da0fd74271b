"""Which deliveries follow from an event."""

import orjson
import pytest

from contracts import events as ev
from contracts import ids
from contracts.deliveries import PlannedDelivery
from contracts.endpoints import anonymous_endpoint
from contracts.errors import Corrupt
from contracts.events import DEFAULT_WEBHOOK_EVENTS, WEBHOOK_EVENTS
from contracts.job import JobState, JobStatus
from contracts.wire import Entry
from services.notifier.payload import Links
from services.notifier.planning.deliveries import Audience, Plan, plan_job
from services.notifier.planning.job_body import read_body
from services.notifier.planning.notices import Source
from services.notifier.planning.story import Story
from services.notifier.planning.targets import own_target

JOB = ids.mint_job_id(1_764_457_200_000, 1, "aa")
SOURCE = Source("aa", 1, Links("https://gen.example", b"secret"))
STATE = JobState(JOB, 2, status=JobStatus.IN_PROGRESS, tenant_id="t_acme", model="echo@1", attempt=1, progress=25)
SPEC = {"webhookUrl": "https://app.example/hook", "userId": "u_42"}


def entry(event: ev.Event, sequence: int = 2) -> Entry:
    return Entry("1764457209999-0", event.TYPE, JOB, event.to_json().encode(), sequence=sequence, hooked=True)


def body(**spec) -> bytes:
    return orjson.dumps(SPEC | spec)


def plan(told: Entry, state: JobState, lines: bytes) -> list[PlannedDelivery]:
    made: Plan = plan_job([told], Story(state, {}), read_body(JOB, lines), Audience(), SOURCE)
    assert made.poison == []
    return made.deliveries


def wants(event_type: str, spec: dict[str, object]) -> bool:
    return own_target(event_type, "t_a", spec, spec.get("webhookEvents")) is not None


def test_the_same_event_gives_the_same_delivery_and_the_same_bytes():
    started = ev.JobStarted(worker_id="wrk_1", offer_id="o", slot=0, device="cpu-0", attempt=1)
    first = plan(entry(started), STATE, body())
    assert first == plan(entry(started), STATE, body())
    [planned] = first
    assert ids.job_of(planned.id) == JOB
    assert planned.fields["message"] == ids.event_id(JOB, 2)
    assert orjson.loads(planned.fields["body"])["progress"] == 25


def test_without_a_filter_the_default_events_are_sent_and_with_one_only_those():
    assert {name for name in WEBHOOK_EVENTS if wants(name, SPEC)} == set(DEFAULT_WEBHOOK_EVENTS)
    chosen = SPEC | {"webhookEvents": ["job.progress"]}
    assert {name for name in WEBHOOK_EVENTS if wants(name, chosen)} == {"job.progress"}
    assert not wants("job.completed", {"userId": "u_42"})


def test_the_list_of_the_events_moment_decides_however_late_it_is_planned():
    changed = body(webhookEvents=["job.progress"]) + b'\n{"webhookEvents":["job.started"],"sequence":3}'
    started = ev.JobStarted(worker_id="wrk_1", offer_id="o", slot=0, device="cpu-0", attempt=1)
    early, late = (entry(started)._replace(sequence=sequence) for sequence in (2, 3))

    assert plan(early, STATE, changed) == []
    assert len(plan(late, STATE, changed)) == 1


def test_an_event_type_of_a_newer_version_is_passed_on_as_it_is():
    newer = Entry("1764457209999-0", "job.dreamt", JOB, b'{"of":"sheep"}', sequence=2, hooked=True)
    [planned] = plan(newer, STATE, body(webhookEvents=["job.dreamt"]))
    shown = orjson.loads(planned.fields["body"])
    assert (shown["type"], shown["status"], shown["data"]["of"]) == ("job.dreamt", "in_progress", "sheep")


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"webhookUrl":1}\nnot json'])
def test_a_body_that_cannot_be_read_is_corrupt(broken):
    with pytest.raises(Corrupt):
        read_body(JOB, broken)


def test_all_urls_of_one_origin_are_one_endpoint_and_tenants_do_not_share_it():
    name = anonymous_endpoint("t_a", "https://app.example/hook?job=1")
    assert name == anonymous_endpoint("t_a", "https://APP.example/other")
    assert name != anonymous_endpoint("t_b", "https://app.example/hook?job=1")
    assert name != anonymous_endpoint("t_a", "https://app.example:8443/hook")


def test_a_webhook_shows_the_metadata_as_they_were_at_its_event():
    lines = b"\n".join(
        [
            body(webhookEvents=["job.progress"], metadata={"n": "0"}),
            b'{"metadata":{"n":"1"},"sequence":2}',
            b'{"metadata":{"n":"2"},"sequence":3}',
        ]
    )

    def shown(sequence: int) -> object:
        state = JobState(JOB, sequence, status=JobStatus.IN_PROGRESS, tenant_id="t_acme", model="echo@1")
        [planned] = plan(entry(ev.JobProgress(progress=1), sequence), state, lines)
        return orjson.loads(planned.fields["body"])["data"]["metadata"]["n"]

    assert [shown(sequence) for sequence in (1, 2, 3, 9)] == ["0", "1", "2", "2"]
