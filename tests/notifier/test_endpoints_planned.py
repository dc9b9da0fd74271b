"""What is planned for a tenant's endpoints, from the log of a real store to real receivers."""

import orjson
import pytest
from standardwebhooks import Webhook

from contracts import events as ev
from contracts.api import WebhookPayload
from contracts.store import Store, keys
from tests.notifier.endpoints import make_endpoint
from tests.notifier.hooked import (
    POOL,
    SECRET,
    admit,
    append,
    completed,
    make_tenant,
    notifier,
    settled,
    started,
    until,
)
from tests.notifier.receiver import Receiver, answer


@pytest.fixture
async def store(store: Store) -> Store:
    """The open store, with a tenant that has a secret."""
    await make_tenant(store)
    return store


def bodies(receiver: Receiver) -> list[dict]:
    return [orjson.loads(request.body) for request in receiver.requests]


def types_of(receiver: Receiver, job_id: str) -> list[str]:
    return [body["type"] for body in bodies(receiver) if body["jobId"] == job_id]


async def all_planned(store: Store) -> bool:
    groups = await store.client.xinfo_groups(keys.log(POOL))
    [group] = [one for one in groups if one["name"] == keys.GROUP_NOTIFIER.encode()]
    return (group["last-delivered-id"].decode(), group["pending"]) == (await store.end_of_log(POOL), 0)


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
