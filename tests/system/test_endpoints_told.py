"""Endpoints through whole processes: what the log says is what receivers hear, also over a killed notifier."""

import itertools

import pytest
from standardwebhooks import Webhook

from contracts import ids
from contracts.events import WEBHOOK_EVENTS
from tests.harness import Stack
from tests.notifier.receiver import Received, Receiver, answer

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDED = {"job.completed", "job.failed", "job.cancelled", "job.expired"}


async def test_receivers_hear_what_the_log_says_of_their_tenants_jobs_and_nothing_else(stack: Stack) -> None:
    """Field case 97: a load that fails before the handler runs: each started is followed by exactly one end.

    Field case 95: to a strict endpoint each job comes in order, though the notifier is killed and the first calls fail.
    """
    async with Receiver([answer(500), answer(500), answer(200)]) as strict, Receiver([answer(200)]) as other:
        secret = await make_endpoint(stack, strict.url(), events=["*"], ordering="strict", minIntervalMs=0)
        stranger = await stack.make_tenant()
        await make_endpoint(stack, other.url(), key=stranger, events=["*"], format="cloudevents")

        good = [await stack.submit("echo", {"steps": 3}) for _ in range(3)]
        await strict.wait_for_requests(1)
        bad = [await stack.submit(model, policy={"maxAttempts": 1}) for model in ("load_fails", "fails")]
        stack.kill("notifier")
        await stack.wait_for_ends()
        foreign = (await stack.post_job("noop", key=stranger)).json["id"]
        await stack.wait_for_ends(foreign)
        jobs = [*good, *bad]
        expected = {job: told_of(stack, job) for job in jobs}
        await strict.wait_for(lambda: heard_ids(strict.requests) >= set().union(*expected.values()), 60)
        theirs = set(told_of(stack, foreign))
        await other.wait_for(lambda: heard_ids(other.requests) >= theirs)

    assert heard_ids(strict.requests) == set().union(*expected.values())
    assert heard_ids(other.requests) == theirs
    for job in jobs:
        heard = [
            Webhook(secret).verify(r.body, r.headers) for r in strict.requests if job[4:] in r.headers["webhook-id"]
        ]
        sequences = [sequence for sequence, _ in itertools.groupby(body["sequence"] for body in heard)]
        assert sequences == sorted(sequences)
        types = [kind for kind, _ in itertools.groupby(body["type"] for body in heard)]
        assert types[-1] in ENDED
        assert sum(kind in ENDED for kind in types) == 1
        assert types.count("job.started") == 1
    await stack.audit()


def told_of(stack: Stack, job: str) -> set[str]:
    """Return the ids of a job's events that webhooks carry."""
    return {ids.event_id(job, entry.sequence) for entry in stack.log.of(job) if entry.type in WEBHOOK_EVENTS}


def heard_ids(requests: list[Received]) -> set[str]:
    return {request.headers["webhook-id"] for request in requests}


async def make_endpoint(stack: Stack, url: str, key: str | None = None, **fields: object) -> str:
    made = await stack.request("POST", "/v1/webhook-endpoints", {"url": url, **fields}, key=key)
    assert made.status == 201, made
    return str(made.json["secret"])
