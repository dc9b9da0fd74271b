"""The rules of planning, against what they promise in other words."""

from collections import defaultdict
from dataclasses import dataclass, replace

import orjson
from hypothesis import given
from hypothesis import strategies as st

from contracts import events as ev
from contracts import ids
from contracts.deliveries import CONTENT_TYPES, PlannedDelivery
from contracts.endpoints import SUBSCRIBABLE, Endpoint, anonymous_endpoint
from contracts.job import JobState
from contracts.wire import Entry
from services.notifier.formats import write
from services.notifier.payload import BODY_BYTES_MAX, Links, Notice
from services.notifier.planning.deliveries import Audience, plan_job
from services.notifier.planning.job_body import read_body
from services.notifier.planning.notices import Source
from services.notifier.planning.story import Story, tell
from services.notifier.planning.subscriptions import Subscriptions, wants
from services.notifier.planning.targets import LAST, PROGRESS

JOB = ids.mint_job_id(1_764_457_200_000, 1, "aa")
TENANT = "t_acme"
URL = "https://app.example/hook"
SOURCE = Source("aa", 1, Links("https://gen.example", b"secret"))
PATTERNS = ("*", "job.*", "job.completed", "job.progress", "prompt.*", "webhook.*")

endpoints = st.builds(
    Endpoint,
    id=st.integers(1, 6).map(lambda number: ids.mint_endpoint_id(1, number)),
    tenant_id=st.sampled_from([TENANT, "t_other"]),
    origin=st.just("https://a.example"),
    events=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2).map(tuple),
    format=st.sampled_from(sorted(CONTENT_TYPES)),
    ordering=st.sampled_from(["best-effort", "strict"]),
    min_interval_ms=st.sampled_from([0, 1_000]),
    disabled=st.sampled_from(["", "manual"]),
    created_ms=st.integers(0, 12),
    disabled_ms=st.integers(0, 12),
)


def _story(kinds: list[str]) -> list[Entry]:
    """A job's events, one in each millisecond: created, started, what is drawn, completed."""
    body = {
        "job.created": ev.JobCreated(tenant_id=TENANT, model="echo@1", timeout_ms=1, body_bytes=1),
        "job.started": ev.JobStarted(worker_id="wrk_1", offer_id="o", slot=0, device="cpu-0", attempt=1),
        "job.progress": ev.JobProgress(progress=5),
        "prompt.encoded": ev.PromptEncoded(ms=1),
        "job.completed": ev.JobCompleted(artifacts=(), timings=ev.Timings(), attempt=1),
    }
    told = ["job.created", "job.started", *kinds, "job.completed"]
    return [
        Entry(f"{number}-0", kind, JOB, body[kind].to_json().encode(), sequence=number)
        for number, kind in enumerate(told, start=1)
    ]


stories = st.lists(st.sampled_from(["job.progress", "prompt.encoded"]), max_size=8).map(_story)


@dataclass
class Told:
    """What the notifiers of a job have handed over, whoever planned which part."""

    entries: list[Entry]
    audience: list[Endpoint]
    spec: dict[str, object]

    def plan(self, part: list[Entry], handed: dict[str, int] | None = None) -> list[PlannedDelivery]:
        story = tell(JobState(JOB), self.entries, JobState(JOB, len(self.entries), tenant_id=TENANT))
        made = plan_job(
            part, story, read_body(JOB, orjson.dumps(self.spec)), Audience(self.audience, handed or {}), SOURCE
        )
        assert made.poison == []
        return made.deliveries


@given(stories, st.lists(endpoints, max_size=4, unique_by=lambda one: one.id), st.data())
def test_each_event_is_planned_for_who_wanted_it_then_but_for_progress_that_was_overtaken(entries, known, data):
    part = data.draw(st.lists(st.sampled_from(entries), min_size=1, unique_by=lambda entry: entry.sequence))
    part = sorted(part, key=lambda entry: entry.sequence)
    mine = [endpoint for endpoint in known if endpoint.tenant_id == TENANT]
    own = data.draw(st.lists(st.sampled_from(["job.progress", "job.completed", "job.created"]), unique=True))
    told = Told(entries, mine, {"webhookUrl": URL, "webhookEvents": own} if own else {})
    planned = {(delivery.endpoint, delivery.sequence) for delivery in told.plan(part)}

    wanted = set()
    for endpoint in mine:
        strict = endpoint.ordering == "strict"
        for entry in entries[: part[-1].sequence] if strict else part:
            if wants(endpoint, entry.type, entry.sequence):
                wanted.add((endpoint.name, entry.sequence))
    wanted |= {(anonymous_endpoint(TENANT, URL), entry.sequence) for entry in part if entry.type in own}

    assert planned <= wanted
    progress = [name for name, sequence in planned if entries[sequence - 1].type == PROGRESS]
    every = {endpoint.name for endpoint in mine if endpoint.min_interval_ms == 0}
    assert all(progress.count(name) == 1 for name in set(progress) - every)
    throttled = {endpoint.name: endpoint.min_interval_ms > 0 for endpoint in mine}
    for name, sequence in wanted - planned:
        assert entries[sequence - 1].type == PROGRESS
        assert throttled.get(name, True)
        later = [entries[other - 1].type for who, other in planned if who == name and other > sequence]
        assert any(kind == PROGRESS or kind in LAST for kind in later)


@given(stories, st.lists(st.integers(1, 12), max_size=12), st.booleans())
def test_a_strict_endpoint_has_every_event_in_order_whoever_plans_which_part_first(entries, cuts, remembers):
    """Each part hands over all before it; the mark of the store leaves out what was handed over already."""
    endpoint = Endpoint(
        ids.mint_endpoint_id(1, 1), TENANT, "https://a.example", ("*",), ordering="strict", min_interval_ms=0
    )
    told = Told(entries, [endpoint], {})
    order = [*(entries[cut - 1] for cut in cuts if cut <= len(entries)), *reversed(entries)]
    mark, chained, handed = 0, [], {}
    for entry in order:
        for delivery in sorted(told.plan([entry], handed), key=lambda delivery: delivery.sequence):
            assert delivery.strict
            if delivery.sequence > mark:
                mark = delivery.sequence
                chained.append(delivery.sequence)
        if remembers:
            handed = {endpoint.name: max(entry.sequence, handed.get(endpoint.name, 0))}
    assert chained == [entry.sequence for entry in entries]


@given(stories, st.lists(endpoints, max_size=3, unique_by=lambda one: one.id))
def test_the_same_event_has_the_same_id_and_bytes_in_whichever_company_it_is_planned(entries, known):
    told = Told(entries, [endpoint for endpoint in known if endpoint.tenant_id == TENANT], {})
    seen: dict[str, set[str]] = defaultdict(set)
    for first in range(len(entries)):
        for delivery in told.plan(entries[first:]):
            seen[delivery.id].add(delivery.fields["body"])
    assert all(len(bodies) == 1 for bodies in seen.values())


@given(st.lists(endpoints, max_size=6), st.sampled_from(sorted(SUBSCRIBABLE)), st.integers(0, 14))
def test_what_the_index_rules_out_is_wanted_by_nobody(known, event_type, at_ms):
    index = Subscriptions(known)
    if any(wants(endpoint, event_type, at_ms) for endpoint in known):
        assert index.may_want(event_type, at_ms)
    for tenant_id in (TENANT, "t_other", "t_none"):
        assert list(index.of_tenant(tenant_id)) == [one for one in known if one.tenant_id == tenant_id]
    enabled = [replace(endpoint, disabled="") for endpoint in known]
    if not any(endpoint.wants(event_type) for endpoint in enabled):
        assert not index.may_want(event_type, at_ms)


names = st.text(max_size=9).filter(lambda name: name not in ("truncated", "omitted"))
long_texts = st.integers(0, 9_000).map(lambda count: "é" * count)
data = st.dictionaries(names, st.text() | long_texts | st.integers(-(2**53), 2**53) | st.none(), max_size=6)


@given(data, st.sampled_from(sorted(CONTENT_TYPES)))
def test_every_body_is_whole_json_within_its_bound_and_says_what_it_leaves_out(content, form):
    """Field case 107, for each format."""
    notice = Notice(
        event_type="job.completed", event_at_ms=1, job_id=JOB, status="completed", progress=100, sequence=3,
        position="aa.1.1-0", tenant_id=TENANT, data=content, event_id="evt_1", source="worker/wrk_1",
    )  # fmt: skip
    text = write(notice, form)
    body = orjson.loads(text)
    assert len(text.encode()) <= BODY_BYTES_MAX
    if form == "flat":
        assert body == {"jobId": JOB, "status": "completed", "progress": 100, "resultUrl": None}
        return
    shown = (body["data"] if form == "cloudevents" else body)["data"]
    missing = content.keys() - shown.keys()
    assert bool(missing) <= (shown.get("truncated") is True)
    assert set(shown.get("omitted", missing)) == missing


def test_a_log_that_does_not_reach_back_tells_the_job_as_it_is():
    entries = _story([])
    newest = JobState(JOB, 3, tenant_id=TENANT)
    assert Story(newest, {}).at(entries[1]).after is newest
