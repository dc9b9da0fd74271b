"""What is planned for a tenant's endpoints, from the log of a real store to real receivers."""

import asyncio
import itertools
from collections import Counter
from types import SimpleNamespace

import orjson
import pytest
import structlog
from standardwebhooks import Webhook

from contracts import events as ev
from contracts import ids
from contracts.api import WebhookPayload
from contracts.store import Store, keys
from contracts.store.deliveries import Deliveries
from contracts.store.jobs import Jobs
from contracts.store.write import Write
from services.notifier.payload import Links
from services.notifier.planner import Planner
from tests.notifier.endpoints import make_endpoint, name_of, plan, planned, tell
from tests.notifier.hooked import (
    POOL,
    PUBLIC_URL,
    SECRET,
    TENANT,
    admit,
    append,
    completed,
    make_tenant,
    notifier,
    pending,
    settled,
    started,
    until,
)
from tests.notifier.receiver import Received, Receiver, after, answer


def bodies(receiver: Receiver) -> list[dict]:
    return [orjson.loads(request.body) for request in receiver.requests]


def types_of(receiver: Receiver, job_id: str) -> list[str]:
    return [body["type"] for body in bodies(receiver) if body["jobId"] == job_id]


async def all_planned(store: Store) -> bool:
    groups = await store.client.xinfo_groups(keys.log(POOL))
    [group] = [one for one in groups if one["name"] == keys.GROUP_NOTIFIER.encode()]
    return (group["last-delivered-id"].decode(), group["pending"]) == (await store.end_of_log(POOL), 0)


async def next_millisecond(store: Store) -> None:
    """Wait until what happens next is told from what happened by its time."""
    before = await server_ms(store)
    await until(lambda: differs(store, before))


async def differs(store: Store, before: int) -> bool:
    return await server_ms(store) > before


async def server_ms(store: Store) -> int:
    seconds, micros = await store.client.time()
    return seconds * 1000 + micros // 1000


async def quiet(store: Store) -> None:
    """Wait until all that happened is planned and sent; attempts are events, too."""
    await until(lambda: settled(store))
    await until(lambda: all_planned(store))
    await until(lambda: settled(store))


async def test_an_endpoint_hears_of_all_jobs_of_its_tenant_and_of_nobody_elses(store, store_url):
    """Wildcards: `*` hears each event that webhooks carry, `job.*` those of the job, none of another tenant's."""
    await make_tenant(store, "t_other")
    async with Receiver([answer(200)]) as everything, Receiver([answer(200)]) as of_job, Receiver([answer(200)]) as own:
        await make_endpoint(store, everything.url())
        await make_endpoint(store, of_job.url(), events=("job.*",))
        mine = await admit(store, None)
        hooked = await admit(store, own.url(), events=["job.completed"])
        foreign = await admit(store, None, tenant_id="t_other")
        for job_id in (mine, hooked, foreign):
            await append(store, job_id, started(), ev.PromptEncoded(ms=5), hooked=[])
            await append(store, job_id, completed(job_id), hooked=["job.completed"] if job_id == hooked else [])
        async with notifier(store_url):
            await quiet(store)
    told = ["job.completed", "job.created", "job.started"]
    assert {body["jobId"] for body in bodies(everything)} == {mine, hooked}
    for job_id in (mine, hooked):
        assert sorted(types_of(everything, job_id)) == [*told, "prompt.encoded"]
        assert sorted(types_of(of_job, job_id)) == told
    assert types_of(own, hooked) == ["job.completed"]
    assert len(own.requests) == 1
    for request in everything.requests:
        WebhookPayload.model_validate(Webhook(SECRET).verify(request.body, request.headers))
        assert request.headers["x-team"] == "blue"


async def test_an_endpoint_made_while_a_job_runs_hears_of_what_happens_from_then_on(store, store_url):
    """However late it is planned: nothing of before, and nothing missed of after the answer."""
    async with Receiver([answer(200)]) as receiver:
        job_id = await admit(store, None)
        await append(store, job_id, started(), hooked=[])
        await next_millisecond(store)
        await make_endpoint(store, receiver.url())
        await append(store, job_id, ev.PromptEncoded(ms=5), completed(job_id), hooked=[])
        async with notifier(store_url):
            await quiet(store)
    assert sorted(types_of(receiver, job_id)) == ["job.completed", "prompt.encoded"]


async def test_no_event_after_an_answered_endpoint_is_missed_while_a_notifier_runs(store, store_url):
    """The planner looks at the configuration after it has read a batch, so it cannot be behind it."""
    async with Receiver([answer(200)]) as receiver, notifier(store_url):
        jobs = []
        for number in range(20):
            # One that is made in the millisecond of an event may hear of it or not: both are true of it.
            await next_millisecond(store)
            await make_endpoint(store, receiver.url(f"/{number}"), events=("job.created",))
            jobs.append(await admit(store, None))
        await receiver.wait_for_requests(sum(range(1, 21)))
        await quiet(store)
    told = Counter(body["jobId"] for body in bodies(receiver))
    assert told == {job_id: number for number, job_id in enumerate(jobs, start=1)}


async def test_a_planner_that_has_not_heard_of_an_endpoint_yet_looks_before_it_plans(store, store_url):
    """Nobody told this process: its own look after the batch was read is what finds the endpoint."""
    planner = await Calls(store).planner()
    group = store.group(POOL, keys.GROUP_NOTIFIER, "x")
    endpoint_id = await make_endpoint(store, "http://127.0.0.1:9/hook")
    await admit(store, None)
    await planner.plan([message.entry() for message in await group.read()], True)
    [(_, fields)] = await store.deliveries.page(POOL, TENANT)
    assert fields["endpoint"] == name_of(endpoint_id)


async def test_what_happened_before_an_endpoint_was_switched_off_is_held_and_what_follows_is_not_planned(
    store, store_url
):
    """Disabled: nothing is posted; what it still was to hear waits as held. Deleted: nothing is planned at all."""
    async with Receiver([answer(200)]) as receiver:
        off = await make_endpoint(store, receiver.url())
        gone = await make_endpoint(store, receiver.url())
        before = await admit(store, None)
        await tell(store, ev.EndpointDisabled(tenant_id=TENANT, endpoint_id=off, why="manual"), off)
        await tell(store, ev.EndpointDeleted(tenant_id=TENANT, endpoint_id=gone), gone)
        await next_millisecond(store)
        await admit(store, None)
        async with notifier(store_url):
            await until(lambda: all_planned(store))
            await until(lambda: settled(store))
    assert receiver.connections == 0
    page = await store.deliveries.page(POOL, TENANT)
    assert [(fields["job"], fields["endpoint"], fields["state"]) for _, fields in page] == [
        (before, name_of(off), "held")
    ]


async def test_a_changed_list_of_a_job_holds_from_its_event_on_also_amid_an_attempt(store, store_url):
    """PATCH of webhookEvents while an attempt is under way: what it sends stays; later events follow the new list."""
    released = asyncio.Event()
    async with Receiver([after(released, answer(200)), answer(200)]) as receiver, notifier(store_url):
        job_id = await admit(store, receiver.url(), events=["job.started", "job.completed"])
        await append(store, job_id, started(), hooked=["job.started", "job.completed"])
        await receiver.wait_for_requests(1)
        line = b'\n{"webhookEvents":["prompt.encoded"],"sequence":3}'
        changed = Write(job_id, (ev.JobWebhookChanged(events=("prompt.encoded",)),), fence=1)
        await store.jobs.append(POOL, changed, "w-changed", line=line)
        await append(store, job_id, ev.PromptEncoded(ms=5), completed(job_id), hooked=[])
        released.set()
        await receiver.wait_for_requests(2)
        await quiet(store)
    assert types_of(receiver, job_id) == ["job.started", "prompt.encoded"]


@pytest.mark.parametrize("form", ["standard", "flat", "cloudevents"])
async def test_each_format_is_signed_and_has_its_shape_and_its_bounds(store, store_url, form):
    """Field case 107 in each format: a result of 5 MB stays out, the body is whole JSON, bounded, with a link."""
    async with Receiver([answer(200)]) as receiver:
        await make_endpoint(store, receiver.url(), events=("job.completed",), format=form)
        job_id = await admit(store, None, traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01")
        await append(store, job_id, started(), hooked=[])
        await store.client.append(keys.body(POOL, job_id), b"\n" + orjson.dumps({"result": "é" * 2_500_000}))
        await append(store, job_id, completed(job_id), hooked=[])
        async with notifier(store_url):
            [request] = await receiver.wait_for_requests(1)
            await quiet(store)
    body = Webhook(SECRET).verify(request.body, request.headers)
    assert len(request.body) <= 20_000
    assert request.headers["webhook-id"] == ids.event_id(job_id, 3)
    four = {"jobId": job_id, "status": "completed", "progress": 100}
    told = body["data"] if form == "cloudevents" else body
    assert four.items() <= told.items()
    assert told["resultUrl"].startswith(f"{PUBLIC_URL}/v1/artifacts/")
    if form == "flat":
        assert body.keys() == {*four, "resultUrl"}
    else:
        assert (told["data"]["truncated"], told["data"]["omitted"]) == (True, ["result"])
    kind = "application/cloudevents+json" if form == "cloudevents" else "application/json"
    assert request.headers["content-type"] == kind
    if form == "cloudevents":
        head = {"specversion": "1.0", "type": "job.completed", "subject": job_id, "id": ids.event_id(job_id, 3)}
        extensions = {"sequence": "0000000003", "partitionkey": job_id, "source": "worker/wrk_1"}
        assert (head | extensions).items() <= body.items()
        assert body["traceparent"].startswith("00-aaaa")
        assert body["time"] == body["recordedtime"]


async def test_a_strict_endpoint_hears_a_job_in_order_though_it_fails_the_first_twice_and_other_jobs_go_on(
    store, store_url
):
    """Field case 95: rising sequences in every payload; strict holds back the job that fails, and no other."""
    async with Receiver([answer(500), answer(500), answer(200)]) as receiver, Receiver([answer(200)]) as loose:
        await make_endpoint(store, receiver.url(), ordering="strict", max_in_flight=1)
        await make_endpoint(store, loose.url())
        first = await admit(store, None)
        async with notifier(store_url, delays_s=(0, 0.3, 0.3)):
            await receiver.wait_for_requests(1)
            other = await admit(store, None)
            for job_id in (first, other):
                await append(store, job_id, started(), hooked=[])
                await append(store, job_id, ev.PromptEncoded(ms=5), completed(job_id), hooked=[])
            await receiver.wait_for_requests(10)
            await quiet(store)
    told = [(body["jobId"], body["sequence"]) for body in bodies(receiver)]
    in_order = [sequence for job_id, sequence in told if job_id == first]
    of_other = [sequence for job_id, sequence in told if job_id == other]
    assert [sequence for sequence, _ in itertools.groupby(in_order)] == [1, 2, 3, 4]
    assert [sequence for sequence, _ in itertools.groupby(of_other)] == [1, 2, 3, 4]
    assert told.index((other, 1)) < told.index((first, 2))
    # What a receiver without order does with what it has: the highest sequence is the end state.
    newest = max((body for body in bodies(loose) if body["jobId"] == first), key=lambda body: body["sequence"])
    assert (newest["status"], newest["sequence"]) == ("completed", 4)
    stamps = [body["timestamp"] for body in sorted(bodies(loose), key=lambda body: (body["jobId"], body["sequence"]))]
    assert all(stamps)


async def test_a_redriven_job_is_told_of_behind_its_first_end_and_ends_again(store, store_url):
    """Its own webhook hears both ends, with the state of each moment; strict order goes on where it was."""
    error = ev.ErrorFacts(code="worker_lost", retryable=True)
    failed = ev.JobFailed(error=error, attempts=1, dead_lettered=True)
    async with Receiver([answer(200)]) as strict, Receiver([answer(200)]) as own:
        await make_endpoint(store, strict.url(), ordering="strict")
        job_id = await admit(store, own.url())
        await append(store, job_id, started())
        await append(store, job_id, ev.JobAttemptFailed(error=error, attempt=1, will_retry=False), failed)
        async with notifier(store_url):
            await own.wait_for_requests(2)
            redriven = ev.JobRedriven(cause="worker_lost", operation_id="op_1", reason="r", by="key_1")
            again = ev.JobRetried(by="key/key_1", from_status="failed", run=2, max_attempts=4)
            await append(store, job_id, redriven, again)
            await append(store, job_id, started(2))
            await append(store, job_id, completed(job_id))
            await own.wait_for_requests(4)
            await strict.wait_for_requests(8)
            await quiet(store)
    told = [(body["sequence"], body["type"], body["status"]) for body in bodies(own)]
    assert sorted(told) == [
        (2, "job.started", "in_progress"), (4, "job.failed", "failed"),
        (7, "job.started", "in_progress"), (8, "job.completed", "completed"),
    ]  # fmt: skip
    assert [body["sequence"] for body in bodies(strict)] == [1, 2, 3, 4, 5, 6, 7, 8]
    states = {body["type"]: body["status"] for body in bodies(strict)}
    assert (states["job.redriven"], states["job.retried"]) == ("failed", "queued")


async def test_strict_order_is_kept_by_two_notifiers_that_share_the_events_of_a_job(store, store_url):
    """Whoever plans an event hands over all that came before it, so it does not matter who plans what first."""
    async with Receiver([answer(200)]) as receiver:
        await make_endpoint(store, receiver.url(), ordering="strict")
        job_id = await admit(store, None)
        await append(store, job_id, started(), ev.PromptEncoded(ms=5), completed(job_id), hooked=[])
        one, other = await Calls(store).planner(), await Calls(store).planner()
        read = [message.entry() for message in await store.group(POOL, keys.GROUP_NOTIFIER, "x").read(count=9)]
        for planner, entries in ((one, read[3:]), (other, read[:1]), (one, read[1:2]), (other, read[2:3])):
            await planner.plan(entries, True)
        async with notifier(store_url):
            await receiver.wait_for_requests(4)
            await quiet(store)
    assert [body["sequence"] for body in bodies(receiver)] == [1, 2, 3, 4]


async def test_two_thousand_progress_events_in_ten_seconds_are_one_webhook_for_each_interval(store, store_url):
    """Field case 96: at most one progress webhook for each interval, the terminal one always, last, and exactly one."""
    async with (
        Receiver([answer(200)]) as hears_all,
        Receiver([answer(200)]) as terminal,
        Receiver([answer(200)]) as own,
    ):
        await make_endpoint(store, hears_all.url(), min_interval_ms=400)
        await make_endpoint(store, terminal.url(), events=("job.completed",))
        job_id = await admit(store, own.url(), events=["job.progress", "job.completed"])
        hooked = ["job.progress", "job.completed"]
        async with notifier(store_url):
            await append(store, job_id, started(), hooked=hooked)
            for number in range(2_000):
                await append(store, job_id, ev.JobProgress(progress=number / 20), hooked=hooked)
            await append(store, job_id, completed(job_id), hooked=hooked)
            await terminal.wait_for_requests(1)
            await quiet(store)
    assert types_of(terminal, job_id) == ["job.completed"]
    for receiver, interval_s in ((hears_all, 0.4), (own, 1.0)):
        progress = [(at.at_s, body) for at, body in told_of(receiver) if body["type"] == "job.progress"]
        # The pause is kept between claims; an arrival may be late, and the next one then seems early.
        assert 1 <= len(progress) <= (progress[-1][0] - progress[0][0]) / interval_s + 2
        last = bodies(receiver)[-1]
        assert (last["type"], last["sequence"]) == ("job.completed", 2003)
        sequences = [body["sequence"] for _, body in progress]
        assert sequences == sorted(sequences)


def told_of(receiver: Receiver) -> list[tuple[Received, dict]]:
    return [(request, orjson.loads(request.body)) for request in receiver.requests]


async def test_a_warning_about_one_endpoint_is_told_to_the_others_of_its_tenant(store, store_url):
    """Field case 91: somebody else hears that an endpoint fails; not itself, no other tenant, and no flat body."""
    await make_tenant(store, "t_other")
    async with Receiver([answer(500)]) as failing, Receiver([answer(200)]) as ops, Receiver([answer(200)]) as others:
        broken = await make_endpoint(store, failing.url(), events=("job.created", "webhook.*"))
        await make_endpoint(store, ops.url(), events=("webhook.endpoint_failing",))
        await make_endpoint(store, others.url(), events=("webhook.*",), format="flat")
        await make_endpoint(store, others.url(), tenant_id="t_other")
        await admit(store, None)
        async with notifier(store_url, delays_s=(0, *[0.1] * 20), circuit_s=0.05, disable_after_s=1.5):
            [warning, *_] = await ops.wait_for_requests(1)
            await until(lambda: all_planned(store))
    body = Webhook(SECRET).verify(warning.body, warning.headers)
    assert (body["type"], body["endpointId"], body["tenantId"]) == ("webhook.endpoint_failing", broken, TENANT)
    assert body["data"]["outcome"] == "status_500"
    assert others.connections == 0
    told = {orjson.loads(request.body)["data"].get("endpointId") for request in failing.requests}
    assert broken not in told


async def test_what_the_configuration_log_says_of_an_endpoint_is_told_to_the_others(store, store_url):
    """Field case 91: an endpoint that was disabled for its failures is told to the tenant's others, not to itself."""
    async with Receiver([answer(200)]) as receiver, Receiver([answer(200)]) as itself:
        await make_endpoint(store, receiver.url(), events=("webhook.*",), format="cloudevents")
        other = await make_endpoint(store, itself.url(), events=("*", "webhook.endpoint_disabled"))
        await tell(store, ev.EndpointDisabled(tenant_id=TENANT, endpoint_id=other, why="failing"), other)
        async with notifier(store_url):
            await receiver.wait_for_requests(2)
            await until(lambda: nothing_pending(store, keys.SYSTEM))
            await quiet(store)
    told = {body["type"]: body for body in bodies(receiver)}
    assert {"webhook.endpoint_created", "webhook.endpoint_disabled"} == told.keys()
    disabled = told["webhook.endpoint_disabled"]
    assert (disabled["subject"], disabled["data"]["endpointId"]) == (other, other)
    assert disabled["data"]["data"]["why"] == "failing"
    assert itself.connections == 0


async def nothing_pending(store: Store, log: str) -> bool:
    return (await store.client.xpending(keys.log(log), keys.GROUP_NOTIFIER))["pending"] == 0


async def test_planning_is_one_call_for_a_batch_and_one_look_up_for_its_unknown_jobs(store, store_url):
    """Whatever the number of endpoints and events; a second batch of the same jobs looks nothing up."""
    async with Receiver([answer(200)]) as receiver:
        for number in range(3):
            await make_endpoint(store, receiver.url(f"/{number}"), events=("job.started",))
        await make_tenant(store, "t_other")
        jobs = [await admit(store, None, tenant_id="t_other") for _ in range(30)]
        calls = Calls(store)
        planner = await calls.planner()
        group = store.group(POOL, keys.GROUP_NOTIFIER, "counting")
        entries = [message.entry() for message in await group.read(count=100)]
        await planner.plan(entries, True)
        assert calls.counts == {"plan": 1}  # nobody wants job.created: no look-up at all

        for _ in range(2):
            for job_id in jobs:
                await append(store, job_id, started(), ev.JobQueued(reason="handed_back", attempt=1), hooked=[])
            planner = await calls.planner()  # one that has seen none of them
            calls.counts.clear()
            await planner.plan([message.entry() for message in await group.read(count=100)], True)
            assert calls.counts == {"tenants": 1, "plan": 1}
        for job_id in jobs:
            await append(store, job_id, started(), hooked=[])
        calls.counts.clear()
        await planner.plan([message.entry() for message in await group.read(count=100)], True)
        assert calls.counts == {"plan": 1}
    assert await pending(store) == 0


class Calls:
    """Counts what a planner asks of the store."""

    def __init__(self, store: Store) -> None:
        self.counts: Counter[str] = Counter()
        self._store = Store(store.url)
        batched = self._store.batcher.call

        async def call(verb: str, *args: object) -> object:
            self.counts[verb] += 1
            return await batched(verb, *args)

        self._store.jobs = Jobs(SimpleNamespace(call=call))
        self._store.deliveries = Deliveries(SimpleNamespace(call=call), self._store.client)

    async def planner(self) -> Planner:
        meta = await self._store.open_pool(POOL)
        links = Links(PUBLIC_URL, b"s")
        return Planner(self._store, meta, links=links, planned=lambda: None, log=structlog.get_logger())


async def test_of_an_erased_job_endpoints_hear_what_happened_and_nothing_of_what_was_said(store, store_url):
    """Not planned yet: sent without content. Planned before: never sent, though nobody has cleared it away yet.

    Field case 93, with a job that was erased: no post, no retry, nothing pending.
    """
    await make_tenant(store)
    async with Receiver([answer(200)]) as everything, Receiver([answer(200)]) as own:
        endpoint_id = await make_endpoint(store, everything.url())
        await next_millisecond(store)
        job_id = await admit(store, own.url(), events=["job.created", "job.cancelled"], metadata={"cart": "s3cret"})
        cancelled = Write(
            job_id, (ev.JobCancelled(how="queued"),), closes_for=TENANT, hooked=frozenset({"job.cancelled"})
        )
        await store.jobs.append(POOL, cancelled, "cancels")
        [before] = await plan(store, [planned(name_of(endpoint_id), 7, job_id=job_id)])
        erased = Write(job_id, (ev.JobErased(by="key/key_1"),), erases="{}")
        assert (await store.jobs.append(POOL, erased, "erases")).applied
        async with notifier(store_url):
            await everything.wait_for_requests(3)
            await until(lambda: all_planned(store))
        assert sorted(types_of(everything, job_id)) == ["job.cancelled", "job.created", "job.erased"]
        assert b"s3cret" not in b"".join(request.body for request in everything.requests)
        assert {body["data"]["userId"] for body in bodies(everything)} == {None}
        assert own.connections == 0
        assert (await store.deliveries.read(POOL, before))["try"] == "0"
        assert await store.erasing.deliveries(POOL, TENANT, job_id) == 1  # what says nothing is kept
