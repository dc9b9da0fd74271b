"""Endpoints set through the API, as their receivers see them: ingest, a notifier and a receiver together."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError

from contracts import events as ev
from contracts.store import keys
from tests.ingest.api import running_api, settings_for
from tests.ingest.webhooks import PATH, Hooks, hooks_of
from tests.notifier.hooked import notifier, until
from tests.notifier.receiver import Receiver, answer
from tests.store.play import Play

DELIVERIES = "/v1/webhook-deliveries?limit=100"
LONG_AGO = "2020-01-01T00:00:00Z"


@pytest.fixture
async def hooks(store_url: str, tmp_path: Path) -> AsyncIterator[Hooks]:
    async with running_api(settings_for(store_url, tmp_path, webhook={"allow_private": "loopback"})) as api:
        yield await hooks_of(api)


def verifies(secret: str, headers: dict[str, str], body: bytes) -> bool:
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return False
    return True


def is_signed_by(whpk: str, headers: dict[str, str], body: bytes) -> bool:
    """Whether the one `v1a` signature is by the installation's published key."""
    [signature] = [each[4:] for each in headers["webhook-signature"].split() if each.startswith("v1a,")]
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(whpk.removeprefix("whpk_")))
    public.verify(base64.b64decode(signature), content)
    return True


async def test_receivers_with_either_secret_verify_through_a_rotation(hooks: Hooks, store_url: str) -> None:
    """Field cases 112 and 113: 50 pending deliveries carry two signatures during the overlap, also on a retry; after
    it one; the headers of the endpoint's own go along and its masks do not.
    """
    async with Receiver([*[answer(500)] * 5, answer(200)]) as receiver:
        made = await hooks.create(receiver.url(), headers={"Authorization": "Bearer t0p"}, ed25519=True)
        endpoint_id, old = made.body["id"], made.body["secret"]
        pings = {(await hooks.do(endpoint_id, "test")).body["messageId"] for _ in range(50)}
        new = (await hooks.do(endpoint_id, "rotate-secret", overlapSeconds=60)).body["secret"]
        async with notifier(store_url):
            during = list(await receiver.wait_for_requests(55))
            newest = (await hooks.do(endpoint_id, "rotate-secret", overlapSeconds=0)).body["secret"]
            await hooks.do(endpoint_id, "test")
            [*_, after] = await receiver.wait_for_requests(56)

    assert {request.headers["webhook-id"] for request in during} == pings
    keys = (await hooks.get("/.well-known/webhook-keys.json")).body
    for request in during:
        assert request.headers["webhook-signature"].count("v1,") == 2
        assert is_signed_by(keys["webhookKeys"][0], request.headers, request.body)
        assert verifies(old, request.headers, request.body)
        assert verifies(new, request.headers, request.body)
        assert request.headers["authorization"] == "Bearer t0p"
    assert after.headers["webhook-signature"].count("v1,") == 1
    held = [verifies(secret, after.headers, after.body) for secret in (old, new, newest)]
    assert held == [False, False, True]
    assert max(int(request.headers["webhook-attempt"]) for request in during) > 1


async def test_nothing_is_posted_once_the_call_that_switched_off_has_returned(hooks: Hooks, store_url: str) -> None:
    """Field case 90: with retries due all the time, no POST after disable returns; enabled and recovered, each once."""
    async with Receiver([answer(503)]) as receiver:
        endpoint_id = await hooks.endpoint(receiver.url())
        ids = {(await hooks.do(endpoint_id, "test")).body["messageId"] for _ in range(20)}
        async with notifier(store_url, delays_s=[0, *[0.1] * 60]):
            await receiver.wait_for_requests(8)  # before its circuit opens
            await hooks.do(endpoint_id, "disable")
            posted = len(receiver.requests)
            shown = (await hooks.get(DELIVERIES)).body["data"]
            receiver.script[:] = [answer(200)]
            await hooks.do(endpoint_id, "enable")
            before_recovery = len(receiver.requests)
            recovered = (await hooks.do(endpoint_id, "recover", since=LONG_AGO)).body["recovered"]
            again = (await receiver.wait_for_requests(posted + 20))[posted:]

    assert {each["state"] for each in shown} == {"held"}
    assert (before_recovery, recovered) == (posted, 20)
    assert sorted(request.headers["webhook-id"] for request in again) == sorted(ids)


async def test_what_waited_for_a_deleted_endpoint_is_never_posted(hooks: Hooks, store_url: str) -> None:
    """Field case 93: deleted while no sender ran: no POST, no retry, nothing left to do."""
    async with Receiver([answer(200)]) as receiver:
        gone, there = await hooks.endpoint(receiver.url("/gone")), await hooks.endpoint(receiver.url("/there"))
        for _ in range(5):
            await hooks.do(gone, "test")
        await hooks.call("DELETE", f"{PATH}/{gone}")
        await hooks.do(there, "test")
        async with notifier(store_url):
            [request] = await receiver.wait_for_requests(1)

    assert "/there" in request.request_line
    states = {each["endpointId"]: each["state"] for each in (await hooks.get(DELIVERIES)).body["data"]}
    assert states == {gone: "endpoint_deleted", there: "delivered"}
    assert (await hooks.api.store.deliveries.due_endpoints("default", 10)).endpoints == ()


async def test_a_changed_list_is_what_is_sent_while_the_attempt_runs_on(hooks: Hooks, store_url: str) -> None:
    """Field case 98: the worker knows the list of its offer; what goes out is the list of each event's moment."""
    api, play = hooks.api, await Play(hooks.api.store).open()
    async with Receiver([answer(200)]) as receiver:
        job_id = await api.job(webhookUrl=receiver.url(), webhookEvents=["job.completed"])
        attempt, started = play.starting(await play.offers(job_id))
        await api.store.attempts.start(attempt, started)
        await api.store.attempts.emit(attempt, [ev.JobProgress(progress=10)])
        changed = await api.call("PATCH", f"/v1/jobs/{job_id}", json={"webhookEvents": ["job.progress"]})
        await api.store.attempts.emit(attempt, [ev.JobProgress(progress=20)])
        async with notifier(store_url):
            requests = await receiver.wait_for_requests(1)

    assert changed.status == 200
    told = sorted((orjson.loads(each.body)["type"], orjson.loads(each.body)["progress"]) for each in requests)
    assert told == [("job.progress", 20)]


async def test_what_happened_before_an_endpoint_was_made_is_sent_when_it_is_asked_for(
    hooks: Hooks, store_url: str
) -> None:
    """Field case 106: a replay works from the event, though no delivery of it was ever made; the figures tell."""
    api, play = hooks.api, await Play(hooks.api.store).open()
    job_id = await api.job()
    attempt, started = play.starting(await play.offers(job_id))
    await api.store.attempts.start(attempt, started)
    await play.completes(attempt)
    async with Receiver([answer(200)]) as receiver, notifier(store_url):
        endpoint_id = await hooks.endpoint(receiver.url(), events=["job.completed"])
        asked = await hooks.do(endpoint_id, "backfill", since=LONG_AGO)
        [request] = await receiver.wait_for_requests(1)
        await until(lambda: is_done(hooks, endpoint_id))
        again = await hooks.do(endpoint_id, "backfill", since=LONG_AGO)
        await until(lambda: is_done(hooks, endpoint_id))

    assert (asked.status, again.status) == (202, 202)
    body = orjson.loads(request.body)
    assert (body["type"], body["jobId"], len(receiver.requests)) == ("job.completed", job_id, 1)


async def test_a_delivery_whose_time_is_over_is_made_again_by_its_owner_only(hooks: Hooks, store_url: str) -> None:
    """Field case 106: the record is gone, the event is not: the same webhook-id, rendered again; strangers see none."""
    client = hooks.api.store.client
    await hooks.api.tenant("t_b")
    stranger = await hooks_of(hooks.api, "t_b")
    async with Receiver([answer(200)]) as receiver, notifier(store_url):
        await hooks.api.job(webhookUrl=receiver.url(), webhookEvents=["job.created"])
        [first] = await receiver.wait_for_requests(1)
        await until(lambda: has_delivered(hooks))
        [kept] = (await hooks.get(DELIVERIES)).body["data"]
        await client.delete(keys.delivery("default", kept["id"]))
        await client.zrem(keys.deliveries_of("default", "t_a"), kept["id"])
        unknown = await hooks.call("POST", f"/v1/webhook-deliveries/{kept['id'].replace('_1_', '_9_')}/redeliver")
        foreign = await stranger.call("POST", f"/v1/webhook-deliveries/{kept['id']}/redeliver")
        asked = await hooks.call("POST", f"/v1/webhook-deliveries/{kept['id']}/redeliver")
        [_, again] = await receiver.wait_for_requests(2)

    assert (asked.status, unknown.status, foreign.status) == (202, 404, 404)
    shown = {"id": kept["id"], "eventType": "job.created", "messageId": kept["messageId"], "state": "waiting"}
    assert shown.items() <= asked.body.items()
    assert (first.headers["webhook-id"], first.body) == (again.headers["webhook-id"], again.body)


async def has_delivered(hooks: Hooks) -> bool:
    return [each["state"] for each in (await hooks.get(DELIVERIES)).body["data"]] == ["delivered"]


async def is_done(hooks: Hooks, endpoint_id: str) -> bool:
    stats = (await hooks.get(f"{PATH}/{endpoint_id}/stats")).body
    return all(each["state"] == "completed" for each in stats["backfills"])
