"""`/v1/webhook-endpoints`: what is told, what is kept, and who may."""

import asyncio
import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from contracts.endpoints import endpoint_secret, tenant_secret
from contracts.store import keys
from contracts.webhook_headers import MOST_HEADERS
from contracts.webhook_keys import WebhookKey
from tests.ingest.api import Api, running_api, settings_for
from tests.ingest.webhooks import PATH, URL, Hooks, counting_connections, hooks_of


@pytest.fixture
async def hooks(api: Api) -> Hooks:
    return await hooks_of(api)


async def configuration_log(api: Api) -> str:
    return str(await api.store.client.xrange(keys.log(keys.SYSTEM)))


async def test_an_endpoint_is_made_shown_changed_and_deleted(hooks: Hooks) -> None:
    made = await hooks.create(
        events=["job.*", "thumbnail.ready"], headers={"X-Api-Key": "s3cret"}, rateLimit=5, ordering="strict",
        format="cloudevents", maxInFlight=2, ed25519=True, description="production",
    )  # fmt: skip
    path = f"{PATH}/{made.body['id']}"
    shown = await hooks.get(path)
    changed = await hooks.patch(made.body["id"], events=["job.completed"], rateLimit=None, url="https://b.example/")
    listed = await hooks.get(PATH)
    deleted = await hooks.call("DELETE", path)

    assert (made.status, made.headers["location"], made.body["secret"][:6]) == (201, path, "whsec_")
    assert shown.body == {key: value for key, value in made.body.items() if key != "secret"}
    assert (shown.body["url"], shown.body["origin"]) == (URL, "https://app.example")
    assert (shown.body["events"], shown.body["ordering"]) == (["job.*", "thumbnail.ready"], "strict")
    assert shown.body["headers"] == {"X-Api-Key": "***"}
    assert (changed.body["events"], changed.body["rateLimit"]) == (["job.completed"], None)
    assert (changed.body["url"], changed.body["headers"]) == ("https://b.example/", {"X-Api-Key": "***"})
    assert listed.body["data"] == [changed.body]
    assert (deleted.status, (await hooks.get(path)).code) == (204, "endpoint_not_found")
    assert (await hooks.get(PATH)).body["data"] == []


async def test_the_log_names_an_origin_and_never_a_url_a_value_or_a_secret(hooks: Hooks) -> None:
    """Field cases 112 and 113: secrets and values of headers are in no event; a change says which parts it changed."""
    made = await hooks.create(headers={"Authorization": "Bearer h3ader"})
    await hooks.patch(made.body["id"], headers={"Authorization": "Bearer 0ther"}, url=URL + "2")
    rotated = await hooks.do(made.body["id"], "rotate-secret", reason="it leaked")
    log = await configuration_log(hooks.api)

    for secret in ("t0ken", "h3ader", "0ther", made.body["secret"], rotated.body["secret"]):
        assert secret not in log
    assert '"changed":["headers","url"]' in log
    assert "it leaked" in log
    private = await hooks.api.store.directory.private(endpoint_secret(made.body["id"]))
    assert private is not None
    assert (private.url, private.headers) == (URL + "2", {"Authorization": "Bearer 0ther"})


async def test_a_deleted_endpoint_leaves_nothing_kept(hooks: Hooks) -> None:
    endpoint_id = await hooks.endpoint()
    await hooks.call("DELETE", f"{PATH}/{endpoint_id}")

    assert await hooks.api.store.directory.secret(endpoint_secret(endpoint_id)) is None
    assert (await hooks.call("DELETE", f"{PATH}/{endpoint_id}")).status == 404


async def test_what_is_so_already_is_not_written_again(hooks: Hooks) -> None:
    endpoint_id = await hooks.endpoint(headers={"X-A": "1"}, events=["*"])
    await hooks.do(endpoint_id, "disable")
    before = hooks.api.store.directory.configuration.position

    answers = [
        await hooks.patch(endpoint_id),
        await hooks.patch(endpoint_id, url=URL, headers={"X-A": "1"}, events=["*", "*"], rateLimit=None, disabled=True),
        await hooks.do(endpoint_id, "disable"),
    ]

    assert [answer.status for answer in answers] == [200, 200, 200]
    assert hooks.api.store.directory.configuration.position == before


async def test_off_and_on_by_action_and_by_patch(hooks: Hooks) -> None:
    endpoint_id = await hooks.endpoint(disabled=True)

    def shown(answer: dict[str, object]) -> tuple[object, object]:
        return answer["disabled"], answer["disabledWhy"]

    first = (await hooks.get(f"{PATH}/{endpoint_id}")).body
    on = (await hooks.do(endpoint_id, "enable")).body
    off = (await hooks.patch(endpoint_id, disabled=True)).body
    again = (await hooks.patch(endpoint_id, disabled=False)).body

    assert [shown(each) for each in (first, on, off, again)] == [(True, "manual"), (False, None)] * 2
    assert (off["disabledAt"] is None, again["disabledAt"]) == (False, None)


async def test_foreign_and_unknown_endpoints_are_answered_alike(hooks: Hooks) -> None:
    """Field case 10: nothing tells that the id exists."""
    endpoint_id = await hooks.endpoint()
    await hooks.api.tenant("t_b")
    other = await hooks_of(hooks.api, "t_b")

    for wrong in (endpoint_id, endpoint_id[:-1] + "x", "wh_", "wh_anon0123456789ab"):
        path = f"{PATH}/{wrong}"
        answers = [
            await other.get(path), await other.patch(wrong, events=["*"]), await other.call("DELETE", path),
            await other.do(wrong, "enable"), await other.do(wrong, "disable"), await other.do(wrong, "rotate-secret"),
        ]  # fmt: skip
        assert {(answer.status, answer.code, answer.body["detail"]) for answer in answers} == {
            (404, "endpoint_not_found", "There is no such endpoint, or it is not yours, or it was deleted")
        }
    assert (await other.get(PATH)).body["data"] == []
    assert (await hooks.get(f"{PATH}/{endpoint_id}")).status == 200


async def test_each_route_asks_for_its_scope(hooks: Hooks) -> None:
    endpoint_id = await hooks.endpoint()
    reader = Hooks(hooks.api, await hooks.api.new_key("t_a", ["webhooks:read"]))
    writer = Hooks(hooks.api, await hooks.api.new_key("t_a", ["webhooks:write"]))
    stranger = Hooks(hooks.api, hooks.api.key)

    assert (await reader.get(f"{PATH}/{endpoint_id}")).status == 200
    assert (await writer.do(endpoint_id, "enable")).status == 200
    refused = [
        await writer.get(PATH), await writer.get(f"{PATH}/{endpoint_id}"), await stranger.get(PATH),
        await reader.create(), await reader.patch(endpoint_id, disabled=True), await reader.do(endpoint_id, "disable"),
        await reader.do(endpoint_id, "rotate-secret"), await reader.call("DELETE", f"{PATH}/{endpoint_id}"),
        await reader.call("POST", "/v1/webhook-secret/rotate"),
        await hooks.call("POST", "/admin/v1/tenants/t_a/webhook-secret/rotate"),
    ]  # fmt: skip
    assert {(answer.status, answer.code) for answer in refused} == {(403, "missing_scope")}


async def test_a_repeat_of_a_key_makes_no_second_endpoint_and_shows_no_secret(hooks: Hooks) -> None:
    twins = await asyncio.gather(*(hooks.create(idempotency_key="k1") for _ in range(4)))
    made = [answer for answer in twins if answer.status == 201]
    later = await hooks.create(idempotency_key="k1")
    other = await hooks.create(idempotency_key="k1", description="x")
    job = await hooks.api.submit(hooks.key, headers={"Idempotency-Key": "k1"})

    assert len(made) == 1
    assert {answer.body["id"] for answer in (*twins, later)} == {made[0].body["id"]}
    assert (later.status, later.headers["idempotent-replayed"], "secret" in later.body) == (200, "true", False)
    assert (other.status, other.code, job.code) == (422, "idempotency_mismatch", "idempotency_mismatch")
    assert len((await hooks.get(PATH)).body["data"]) == 1
    await hooks.call("DELETE", f"{PATH}/{made[0].body['id']}")
    assert (await hooks.create(idempotency_key="k1")).code == "endpoint_not_found"


async def test_a_tenant_has_so_many_endpoints_and_no_more(store_url: str, tmp_path: Path) -> None:
    settings = settings_for(store_url, tmp_path, webhook={"tenant_endpoints": 2})
    async with running_api(settings) as api:
        hooks = await hooks_of(api)
        answers = await asyncio.gather(*(hooks.create() for _ in range(4)))
        pages = await hooks.get(PATH + "?limit=1")
        rest = await hooks.get(f"{PATH}?limit=1&cursor={pages.body['nextCursor']}")
        freed = await hooks.call("DELETE", f"{PATH}/{rest.body['data'][0]['id']}")

        assert sorted(answer.status for answer in answers) == [201, 201, 429, 429]
        [full] = {answer.code for answer in answers if answer.status == 429}
        assert full == "quota_exceeded"
        assert (pages.body["hasMore"], rest.body["hasMore"], freed.status) == (True, False, 204)
        assert (await hooks.create()).status == 201


SPELLINGS = (
    "2130706433", "0x7f000001", "017700000001", "127.1", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]",
    "100.64.0.1", "0.0.0.0", "169.254.169.254", "[fd00::1]", "localhost.", "user@127.0.0.1", "localhost",
    "a.localhost", "127.0.0.1", "127.0.0.1.", "[::7f00:1]", "[::ffff:7f00:1]", "0", "0177.0.0.1", "%31%32%37.0.0.1",
    "ip6-localhost", "10.0.0.1", "192.168.1.1", "172.16.0.1", "[fe80::1]", "1.1", "0x7f.1", "127.0.0.1@app.example",
)  # fmt: skip


async def test_no_spelling_of_an_inner_address_is_taken_and_nothing_is_connected(hooks: Hooks) -> None:
    """Field case 109: POST, PATCH and a job's webhookUrl refuse each with 422 and its place; no connection is made."""
    endpoint_id = await hooks.endpoint()
    async with counting_connections() as (port, seen):
        for url in (
            f"{scheme}://{host}{end}" for host in SPELLINGS for scheme, end in (("http", f":{port}/"), ("https", "/"))
        ):
            answers = await asyncio.gather(
                hooks.create(url), hooks.patch(endpoint_id, url=url), hooks.api.submit(webhookUrl=url)
            )
            told = [(answer.status, answer.code, answer.pointers) for answer in answers]
            assert told == [
                (422, "webhook_url_not_allowed", [pointer]) for pointer in ("/url", "/url", "/webhookUrl")
            ], url
        assert seen == []
    assert (await hooks.get(f"{PATH}/{endpoint_id}")).body["url"] == URL


ODD_URLS = (
    "https://app.example/#x", "https://app.example/a b", "https://münchen.example/", "https://app.example:22/",
    "ftp://app.example/", "https://u:p@app.example/", "http://app.example/", "app.example", "https://", "//app",
    "https://app.example/\r\nX: y", "javascript:alert(1)", "https://app.example/" + "a" * 2_040,
)  # fmt: skip


async def test_odd_urls_are_refused_with_their_place(hooks: Hooks) -> None:
    """Field cases 98 and 113: 422 that names the field, whatever is odd about the URL; the URL is not repeated."""
    for url in ODD_URLS:
        refused = await hooks.create(url)
        assert (refused.status, refused.pointers) == (422, ["/url"]), url
        assert url.encode() not in refused.raw


BAD_HEADERS: tuple[tuple[dict[str, object], str], ...] = (
    ({"X-A": "s3cret\r\nX-B: b"}, "/headers/X-A"),
    ({"X-A": "s3cret\n"}, "/headers/X-A"),
    ({"X-A": "s3cret\x00"}, "/headers/X-A"),
    ({"X-A": " s3cret"}, "/headers/X-A"),
    ({"X-A": "s3crét"}, "/headers/X-A"),
    ({"X-A": ""}, "/headers/X-A"),
    ({"X-A": "***"}, "/headers/X-A"),
    ({"X-A": "s3cret" * 17_000}, "/headers/X-A"),
    ({"X-A": 1}, "/headers/X-A"),
    ({"X\r\nA": "a"}, "/headers/X\r\nA"),
    ({"X A": "a"}, "/headers/X A"),
    ({"X-A:": "a"}, "/headers/X-A:"),
    ({"": "a"}, "/headers/"),
    *(
        ({name: "s3cret"}, f"/headers/{name}")
        for name in (
            "Host", "Content-Length", "content-type", "Transfer-Encoding", "Connection", "Webhook-Signature",
            "webhook-id", "Proxy-Authorization", "X-Forwarded-For", "TE", "Expect", "traceparent",
        )
    ),
    ({"X-A": "1", "x-a": "2"}, "/headers"),
    ({f"X-{n}": "1" for n in range(MOST_HEADERS + 1)}, "/headers"),
    ({f"X-{n}": "a" * 1_000 for n in range(5)}, "/headers"),
)  # fmt: skip


async def test_headers_that_would_change_the_request_are_refused(hooks: Hooks) -> None:
    """Field case 113: no header can be injected or overridden; 422 names it and never its value."""
    endpoint_id = await hooks.endpoint()
    for headers, pointer in BAD_HEADERS:
        refused = await hooks.create(headers=headers)
        patched = await hooks.patch(endpoint_id, headers=headers)

        for answer in (refused, patched):
            assert (answer.status, answer.pointers) == (422, [pointer])
            assert b"s3cr" not in answer.raw


async def test_bad_fields_are_refused_with_their_place(hooks: Hooks) -> None:
    """Field case 98: a misspelt field, an unknown event and a value out of range are 422 and name the field."""
    bad: tuple[tuple[dict[str, object], list[str]], ...] = (
        ({"webhok": 1}, ["/webhok"]),
        ({"events": ["job.done"]}, ["/events/0"]),
        ({"events": ["job.*", "jo.*"]}, ["/events/1"]),
        ({"events": []}, ["/events"]),
        ({"events": "job.*"}, ["/events"]),
        ({"format": "xml"}, ["/format"]),
        ({"ordering": "fifo"}, ["/ordering"]),
        ({"rateLimit": 0}, ["/rateLimit"]),
        ({"minIntervalMs": -1}, ["/minIntervalMs"]),
        ({"maxInFlight": 0}, ["/maxInFlight"]),
        ({"description": "a\nb"}, ["/description"]),
        ({"secret": "whsec_mine"}, ["/secret"]),
    )
    endpoint_id = await hooks.endpoint()
    for fields, pointers in bad:
        assert (await hooks.create(**fields)).pointers == pointers
        assert (await hooks.patch(endpoint_id, **fields)).pointers == pointers
    assert (await hooks.do(endpoint_id, "rotate-secret", overlapSeconds=-1)).pointers == ["/overlapSeconds"]


async def test_a_rotation_keeps_the_old_secret_for_as_long_as_was_asked_for(hooks: Hooks) -> None:
    """Field case 112: both sign during the overlap, only the new one afterwards; a secret is shown this once."""
    made = await hooks.create()
    endpoint_id, now_ms = made.body["id"], hooks.api.service.context.now_ms()
    day = await hooks.do(endpoint_id, "rotate-secret")
    minute = await hooks.do(endpoint_id, "rotate-secret", overlapSeconds=60)
    private = await hooks.api.store.directory.private(endpoint_secret(endpoint_id))
    assert private is not None

    old, newer, newest = made.body["secret"], day.body["secret"], minute.body["secret"]
    assert private.signing(now_ms) == (newest, newer, old)
    assert private.signing(now_ms + 50_000) == (newest, newer, old)
    assert private.signing(now_ms + 90_000) == (newest,)
    at_once = await hooks.do(endpoint_id, "rotate-secret", overlapSeconds=0)
    private = await hooks.api.store.directory.private(endpoint_secret(endpoint_id))
    assert private is not None
    assert private.signing(hooks.api.service.context.now_ms()) == (at_once.body["secret"],)
    shown = [await hooks.get(f"{PATH}/{endpoint_id}"), await hooks.get(PATH), await hooks.do(endpoint_id, "enable")]
    assert not [answer for answer in shown if b"whsec_" in answer.raw]


async def test_a_tenants_own_secret_is_rotated_by_itself_and_by_the_operator(hooks: Hooks) -> None:
    """Field case 112: what signs the webhooks of jobs goes over to the new secret with both signing."""
    first = hooks.api.secrets["t_a"]
    mine = await hooks.call("POST", "/v1/webhook-secret/rotate", json={"overlapSeconds": 3_600})
    version = hooks.api.store.directory.configuration.tenants["t_a"].webhook_version
    theirs = await hooks.api.admin("POST", "/admin/v1/tenants/t_a/webhook-secret/rotate", json={"reason": "leaked"})
    nobody = await hooks.api.admin("POST", "/admin/v1/tenants/t_x/webhook-secret/rotate")
    private = await hooks.api.store.directory.private(tenant_secret("t_a"))
    assert private is not None

    signing = private.signing(hooks.api.service.context.now_ms())
    assert signing == (theirs.body["secret"], mine.body["secret"], first)
    assert (nobody.status, nobody.code) == (404, "tenant_not_found")
    assert hooks.api.store.directory.configuration.tenants["t_a"].webhook_version != version
    log = await configuration_log(hooks.api)
    assert "leaked" in log
    assert not [secret for secret in signing[:2] if secret in log]


async def test_a_tenant_may_be_held_to_listed_hosts(hooks: Hooks) -> None:
    """Field case 113: where the operator lists hosts, endpoints and jobs lead there or are refused with their place."""
    api, before = hooks.api, await hooks.endpoint()
    listed = await api.admin("PATCH", "/admin/v1/tenants/t_a", json={"webhookHosts": ["ok.example", "*.ok.example"]})
    wrong = await api.admin("PATCH", "/admin/v1/tenants/t_a", json={"webhookHosts": ["https://ok.example"]})

    assert listed.body["webhookHosts"] == ["ok.example", "*.ok.example"]
    assert wrong.pointers == ["/webhookHosts/0"]
    for url in ("https://evil.example/", "https://notok.example", "https://ok.example.evil.example/"):
        for answer in (await hooks.create(url), await hooks.patch(before, url=url)):
            assert (answer.status, answer.code, answer.pointers) == (422, "webhook_url_not_allowed", ["/url"])
        assert (await api.submit(webhookUrl=url)).pointers == ["/webhookUrl"]
    for url in ("https://OK.example/x", "https://a.b.ok.example:8443", "https://ok.example./"):
        assert (await hooks.create(url)).status == 201
        assert (await api.submit(webhookUrl=url)).status == 201
    freed = await api.admin("PATCH", "/admin/v1/tenants/t_a", json={"webhookHosts": None})
    assert (freed.body["webhookHosts"], (await hooks.create()).status) == (None, 201)


async def test_the_public_keys_are_the_installations_and_need_no_key(hooks: Hooks) -> None:
    shown = await hooks.api.call("GET", "/.well-known/webhook-keys.json", key="")
    root = await hooks.api.store.directory.secret("urls")
    assert root is not None
    signature = WebhookKey(root.encode()).sign(b"evt_1.2.body")

    [text], [jwk] = shown.body["webhookKeys"], shown.body["keys"]
    public = base64.b64decode(text.removeprefix("whpk_"))
    assert base64.urlsafe_b64decode(jwk["x"] + "=") == public
    assert (jwk["kty"], jwk["crv"], jwk["alg"]) == ("OKP", "Ed25519", "EdDSA")
    raw = base64.b64decode(signature.removeprefix("v1a,"))
    Ed25519PublicKey.from_public_bytes(public).verify(raw, b"evt_1.2.body")
