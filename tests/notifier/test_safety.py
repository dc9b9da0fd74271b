"""What holds for every attempt: who signs, where it may go, what is shown of the answer, and what stays secret."""

import asyncio
import base64
import pickle
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError

from contracts import events as ev
from contracts.deliveries import Claimed
from contracts.endpoints import Private, SigningSecret, endpoint_secret
from contracts.outbound.answer import Head
from contracts.outbound.terms import Proxy, Route
from contracts.store import Store, keys
from contracts.webhook_keys import KEY_ROOT, WebhookKey
from contracts.webhook_target import place_of
from services.notifier.attempt.post import Heard, Report
from services.notifier.attempt.verdict import Answered
from services.notifier.sending.record import Target, read_delivery
from tests.ingest.api import running_api, settings_for
from tests.ingest.webhooks import PATH, hooks_of
from tests.notifier.endpoints import make_endpoint, name_of, plan, planned, states
from tests.notifier.hooked import POOL, SECRET, TENANT, admit, finish, log_of, notifier, settled, until
from tests.notifier.receiver import Behaviour, Receiver, answer
from tests.notifier.test_delivery import closed_port
from tests.notifier.test_processes import Process
from tests.outbound.dns_server import dns_server
from tests.outbound.proxy import connect_proxy


def echo(status: int, receiver: Receiver) -> Behaviour:
    """Answer with all that was sent, as some receivers do in their error pages."""

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = receiver.requests[-1]
        text = f"{request.request_line}\n{request.headers}\n{request.body.decode()}".encode()
        head = f"HTTP/1.1 {status} Echo\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n\r\n"
        writer.write(head.encode() + text)

    return behave


async def test_both_secrets_sign_through_a_rotation_and_only_the_new_one_afterwards(store_url, tmp_path):
    """Field case 112: 50 deliveries pending; receivers with either key verify through the window, then only the new.

    Through retries and a redelivery, too: each is signed at its own moment.
    """
    settings = settings_for(store_url, tmp_path, webhook={"allow_private": "loopback"})
    async with running_api(settings) as api, Receiver([answer(500)] * 5 + [answer(200)]) as receiver:
        hooks = await hooks_of(api)
        made = await hooks.create(receiver.url(), maxInFlight=25)
        endpoint_id, old = made.body["id"], made.body["secret"]
        deliveries = [planned(name_of(endpoint_id), number, tenant_id="t_a") for number in range(1, 51)]
        delivery_ids = await plan(api.store, deliveries)
        new = (await hooks.do(endpoint_id, "rotate-secret", overlapSeconds=60)).body["secret"]
        async with notifier(store_url, delays_s=(0, 0.05, 0.05), circuit_s=0.01):
            await until(lambda: settled(api.store))
            during = list(receiver.requests)
            newest = (await hooks.do(endpoint_id, "rotate-secret", overlapSeconds=0)).body["secret"]
            again = await hooks.call("POST", f"/v1/webhook-deliveries/{delivery_ids[0]}/redeliver")
            await until(lambda: settled(api.store))
        shown = [await hooks.get(f"{PATH}/{endpoint_id}"), await hooks.get(PATH), again]
    assert again.status == 202
    assert len(during) == 55
    for request in during:
        assert request.headers["webhook-signature"].count("v1,") == 2
        for secret in (old, new):
            Webhook(secret).verify(request.body, request.headers)
    [redelivered] = receiver.requests[55:]
    assert redelivered.headers["webhook-signature"].count("v1,") == 1
    Webhook(newest).verify(redelivered.body, redelivered.headers)
    for secret in (old, new):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(redelivered.body, redelivered.headers)
    assert not any(secret in str(each.body) for secret in (old, new, newest) for each in shown)


@pytest.mark.parametrize(
    "body", ["", "{}", '{"text":"\U0001f600 a\u2028b"}', '{"big":123456789012345678901234567890,"float":1e-7}']
)
async def test_an_endpoint_may_ask_for_a_signature_that_needs_no_secret(store, store_url, body):
    """Field case 111: `v1` and `v1a` over the raw bytes; a changed id, time or byte fails with either."""
    root = await store.directory.keep_secret(KEY_ROOT, "5" * 64)
    key = WebhookKey(root.encode())
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key.text().removeprefix("whpk_")))
    async with Receiver([answer(500), answer(200)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url(), ed25519=True)
        one = planned(name_of(endpoint_id), 1)
        one.fields["body"] = body
        await plan(store, [one])
        async with notifier(store_url, delays_s=(0, 0.05)):
            await until(lambda: settled(store))
    first, second = receiver.requests
    for request in (first, second):
        v1, v1a = request.headers["webhook-signature"].split(" ")
        assert (v1[:3], v1a[:4]) == ("v1,", "v1a,")
        assert request.body == body.encode()
        content = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
        public.verify(base64.b64decode(v1a[4:]), content)
        if body:
            Webhook(SECRET).verify(request.body, request.headers)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


async def test_a_host_that_is_not_listed_any_more_is_not_called(store, store_url):
    """The operator's list holds at the attempt as well: what was planned before it was made goes nowhere else."""
    async with Receiver([answer(200)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        await store.directory.change(
            lambda _: ev.TenantUpdated(tenant_id=TENANT, webhook_hosts=("ok.example",)), TENANT
        )
        [delivery_id] = await plan(store, [planned(name_of(endpoint_id), 1)])
        job_id = await admit(store, receiver.url())
        async with notifier(store_url, delays_s=(0, 0.05)):
            await finish(store, job_id)
            await until(lambda: settled(store))
    assert receiver.connections == 0
    assert await states(store, [delivery_id]) == ["exhausted"]
    outcomes = {entry.event().outcome for entry in await log_of(store, "webhook.attempted")}
    assert outcomes == {"host_not_listed"}


async def test_a_proxy_that_is_down_is_no_failure_of_any_receiver(store, store_url):
    """Its own code; no circuit opens, nothing counts against the endpoint, and it goes out once the proxy is back."""
    async with Receiver([answer(200)]) as receiver:
        endpoint_id = await make_endpoint(store, receiver.url())
        name = name_of(endpoint_id)
        [delivery_id] = await plan(store, [planned(name, 1)])
        gone = Route(proxy=Proxy("127.0.0.1", closed_port()))
        async with notifier(store_url, delays_s=(0, *[0.02] * 12, 5), circuit_s=30, route=gone):
            await until(lambda: _attempted(store, 12))
        row = await store.deliveries.endpoint(POOL, name)
        survey = await store.deliveries.survey(POOL)
        async with notifier(store_url):
            await store.deliveries.redeliver(POOL, delivery_id, "w1")
            await until(lambda: settled(store))
    assert (row.row, row.is_open, row.since_ms, row.hours) == (0, False, 0, {})
    assert survey.outcomes["proxy"] >= 12
    assert await states(store, [delivery_id]) == ["delivered"]


async def test_a_process_asks_the_nameservers_and_goes_through_the_proxy_that_are_set(store, store_url):
    """The settings reach the sockets: the name is asked of one, its address is told to the other."""
    names = {"hook.example": [["10.1.2.3"]]}
    async with (
        Receiver([answer(200)]) as receiver,
        dns_server(names) as dns,
        connect_proxy(("127.0.0.1", receiver.port)) as proxy,
    ):
        endpoint_id = await make_endpoint(store, "http://hook.example:8000/hook")
        [delivery_id] = await plan(store, [planned(name_of(endpoint_id), 1)])
        way = {"NAMESERVERS": f"127.0.0.1:{dns.port}", "PROXY": f"http://127.0.0.1:{proxy.port}"}
        async with Process(store_url, ALLOW_PRIVATE="all", **way):
            await until(lambda: settled(store))
    assert await states(store, [delivery_id]) == ["delivered"]
    assert dns.asked["hook.example", "A"] == 1
    assert [asked.split()[1] for asked in proxy.asked] == ["10.1.2.3:8000"]
    assert receiver.requests[0].headers["host"] == "hook.example:8000"


async def _attempted(store: Store, count: int) -> bool:
    return len(await log_of(store, "webhook.attempted")) >= count


async def test_an_answer_is_shown_in_part_to_its_tenant_and_to_nobody_else(store_url, tmp_path):
    """Field case 110: 1 MB of text with a secret: at most 1 kB of it is kept, and only the owner may read it."""
    page = b"internal notes: " + b"z" * 1_000_000
    settings = settings_for(store_url, tmp_path, webhook={"allow_private": "loopback"})
    async with running_api(settings) as api, Receiver([answer(500, {"Content-Type": "text/html"}, page)]) as receiver:
        hooks = await hooks_of(api)
        await api.tenant("t_b")
        other = await hooks_of(api, "t_b")
        endpoint_id = await hooks.endpoint(receiver.url(), events=["*"])
        [delivery_id] = await plan(api.store, [planned(name_of(endpoint_id), 1, tenant_id="t_a")])
        async with notifier(store_url, delays_s=(0,)):
            await until(lambda: settled(api.store))
        path = f"/v1/webhook-deliveries/{delivery_id}"
        mine = await hooks.get(path + "/attempts")
        theirs = [await other.get(path + tail) for tail in ("", "/attempts")]
        operators = [await api.admin("GET", "/admin/v1/webhook-deliveries?tenantId=t_a"), await api.admin("GET", path)]
        logs = str(await api.store.client.xrange(keys.log(POOL))) + str(
            await api.store.client.xrange(keys.log(keys.SYSTEM))
        )
    [attempt] = mine.body["data"]
    assert attempt["responseBody"].startswith("internal notes: zzz")
    assert len(attempt["responseBody"].encode()) == 1_024
    assert attempt["responseHeaders"]["content-type"] == "text/html"
    assert [each.status for each in theirs] == [404, 404]
    assert not any("internal notes" in str(each.body) for each in [*theirs, *operators])
    assert "internal notes" not in "".join(logs)


async def test_planted_secrets_are_in_no_log_event_or_answer(store_url, tmp_path):
    """Field cases 112 and 113: a story of failing, echoing, unsigned and unreadable attempts; all of it is searched."""
    settings = settings_for(store_url, tmp_path, webhook={"allow_private": "loopback"})
    async with running_api(settings) as api, Receiver([answer(200)]) as receiver:
        receiver.script[:] = [echo(500, receiver), echo(500, receiver), echo(410, receiver)]
        hooks = await hooks_of(api)
        headers = {"Authorization": "Bearer h3ader-value", "Cookie": "c00kie-value"}
        made = await hooks.create(receiver.url("/h?url-t0ken"), headers=headers)
        rotated = await hooks.do(made.body["id"], "rotate-secret")
        dead = await hooks.endpoint(f"http://127.0.0.1:{closed_port()}/x?url-t0ken", headers=headers)
        unreadable, unsigned = (
            await hooks.endpoint(receiver.url("/u?url-t0ken")),
            await hooks.endpoint(receiver.url("/v")),
        )
        await keep(api.store, unreadable, '{"secrets":"Bearer h3ader-value')
        await keep(
            api.store,
            unsigned,
            Private(receiver.url("/v?url-t0ken"), headers, (SigningSecret("whsec_s3cret"),)).to_json(),
        )
        all_of_them = [made.body["id"], dead, unreadable, unsigned]
        await plan(api.store, [planned(name_of(each), 1, tenant_id="t_a") for each in all_of_them])
        job_id = await admit(api.store, receiver.url("/j?url-t0ken"), tenant_id="t_a")
        root = await api.store.directory.secret(KEY_ROOT)
        with (tmp_path / "stderr").open("wb") as stderr:
            async with Process(store_url, {"HEADRACE_LOG__LEVEL": "debug"}, stderr, SCHEDULE="0,0.05") as process:
                await finish(api.store, job_id)
                await until(lambda: settled(api.store))
                await process.stop()
        output = (tmp_path / "stderr").read_text()
        jobs = [f"/v1/jobs/{job_id}{tail}" for tail in ("", "/events", "/deliveries")]
        shown = [PATH, *(f"{PATH}/{each}{tail}" for each in (made.body["id"], dead) for tail in ("", "/stats"))]
        listed = await hooks.get("/v1/webhook-deliveries")
        ids = [delivery["id"] for delivery in listed.body["data"]]
        deliveries = [f"/v1/webhook-deliveries/{each}{tail}" for each in ids for tail in ("", "/attempts")]
        mine = [(await hooks.get(path)).raw.decode() for path in (*jobs, *shown, *deliveries)]
        operators = [
            (await api.admin("GET", f"/admin/v1/{path}")).raw.decode()
            for path in ("webhook-endpoints", "webhook-deliveries", "tenants", "overview")
        ]
        async with api.session.get(api.url + "/metrics") as metrics:
            operators.append(await metrics.text())
        logs = [str(await api.store.client.xrange(keys.log(name))) for name in (POOL, keys.SYSTEM)]
    secrets = {"h3ader-value", "c00kie-value", "s3cret", root, api.secrets["t_a"]}
    secrets |= {made.body["secret"], rotated.body["secret"]}
    secrets |= {secret.removeprefix("whsec_").rstrip("=") for secret in secrets}
    told = {*re.findall(r'"event": *"(\w+)"', output)}
    assert told >= {"webhook_attempted", "delivery_set_aside", "secret_unusable"}
    assert "***" in "".join(mine), "the receiver did send them back"
    everything = "\n".join([*mine, *operators, *logs, output])
    assert [secret for secret in secrets if secret in everything] == []
    assert "url-t0ken" not in "\n".join([*operators, *logs, output]), "a URL is its tenant's business only"


async def keep(store: Store, endpoint_id: str, text: str) -> None:
    await store.client.set(keys.secret(endpoint_secret(endpoint_id)), text.encode())


def test_what_is_secret_is_in_no_repr():
    """Field cases 112 and 113: whatever prints a delivery, its target, a post, a report or a key prints no secret."""
    hidden = "h1dden"
    target = Target(hidden, (hidden,), {"X-Key": hidden}, None, WebhookKey(hidden.encode()))
    fields = {"try": "0", "tenant": "t", "job": "j", "event": "e", "message": "m", "body": hidden, "url": hidden}
    delivery = read_delivery(Claimed("anon1", "dlv_1", fields))
    private = Private(hidden, {"X-Key": hidden}, (SigningSecret(hidden),))
    heard = Heard({"server": hidden}, hidden)
    everything = [target, delivery, delivery.post(target, 1), private, Report(Answered(200), 1, heard), target.key,
                  place_of(f"https://a.example/{hidden}"), Head(200, {"x": hidden})]  # fmt: skip
    assert hidden not in repr(everything)


class Bomb:
    """Unpickled, it leaves a file."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self):
        return Path.touch, (self._mark,)


async def test_a_pickle_in_the_store_is_bad_data_and_nothing_runs(store, store_url, tmp_path):
    """Field case 114: in the log, a job's body, a delivery's bytes and count, and what is kept of an endpoint."""
    bomb = pickle.dumps(Bomb(tmp_path / "ran"))
    client = store.client
    async with Receiver([answer(200)]) as receiver:
        good, spoilt = await make_endpoint(store, receiver.url()), await make_endpoint(store, receiver.url())
        endpoints = [good, good, good, spoilt]
        ids = await plan(store, [planned(name_of(each), number) for number, each in enumerate(endpoints, 1)])
        await client.set(keys.secret(endpoint_secret(spoilt)), bomb)
        await client.hset(keys.delivery(POOL, ids[1]), "body", bomb)
        await client.hset(keys.delivery(POOL, ids[2]), mapping={"body": bomb, "try": bomb})
        job_id = await admit(store, receiver.url())
        await client.append(keys.body(POOL, job_id), b"\n" + bomb)
        await client.xadd(keys.log(POOL), {"t": b"job.completed", "d": bomb, "h": b"1", "j": bomb, "s": b"1"})
        async with notifier(store_url, delays_s=(0, 0.05)):
            await finish(store, job_id)
            await until(lambda: has_ended(store, ids))
    assert not (tmp_path / "ran").exists()
    assert await words(store, ids) == ["delivered", "unreadable", "unreadable", "unreadable"]
    assert len(await client.xrange(keys.poison(POOL))) >= 1


async def words(store: Store, delivery_ids: list[str]) -> list[str]:
    raw = [await store.client.hget(keys.delivery(POOL, delivery_id), "state") for delivery_id in delivery_ids]
    return [word.decode() for word in raw]


async def has_ended(store: Store, delivery_ids: list[str]) -> bool:
    return "waiting" not in await words(store, delivery_ids)
