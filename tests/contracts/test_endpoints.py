"""Endpoints as the configuration log tells of them, patterns of events, and what only the kept secret holds."""

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import events as ev
from contracts.endpoints import (
    MOST_SECRETS,
    SUBSCRIBABLE,
    Endpoint,
    Private,
    SigningSecret,
    is_pattern,
    matches,
    read_private,
)
from contracts.errors import Corrupt
from contracts.ids import BadId, delivery_id, endpoint_of, is_endpoint_id, mint_endpoint_id, mint_job_id
from contracts.tenant import Configuration, configure
from contracts.webhook_headers import name_fault, value_fault
from contracts.webhook_hosts import is_host_pattern, is_listed
from contracts.wire import decode, wire_type

WH = str(mint_endpoint_id(1_764_457_200_000, 1))
CREATED = ev.EndpointCreated(
    tenant_id="t_a", endpoint_id=WH, origin="https://a.example", events=("job.*",), rate_per_s=5, description="x"
)
OF = {"tenant_id": "t_a", "endpoint_id": WH}


def folded(*events: ev.Event) -> Configuration:
    entries = [
        decode(f"{1_000 + i}-0", {"t": wire_type(event), "j": WH, "d": event.to_json()})
        for i, event in enumerate(events)
    ]
    return reduce(configure, entries, Configuration())


def test_an_endpoint_is_what_its_events_say() -> None:
    updated = ev.EndpointUpdated(**OF, origin="https://b.example", events=("*",), ordering="strict")

    one = folded(CREATED).endpoints[WH]
    off = folded(CREATED, ev.EndpointDisabled(**OF, why="gone"), ev.EndpointSecretRotated(**OF, old_until_ms=9))
    on = folded(CREATED, ev.EndpointDisabled(**OF, why="manual"), updated, ev.EndpointEnabled(**OF)).endpoints[WH]

    assert (one.name, one.origin, one.rate_per_s, one.created_ms) == (WH[3:], "https://a.example", 5, 1_000)
    assert (one.disabled, one.version, one.description) == ("", "1000-0", "x")
    assert off.endpoint_by_name(WH[3:]) == off.endpoints[WH]
    assert (off.endpoints[WH].disabled, off.endpoints[WH].disabled_ms) == ("gone", 1_001)
    assert off.endpoints[WH].version == "1002-0"
    assert (on.disabled, on.disabled_ms, on.ordering, on.created_ms, on.rate_per_s) == ("", None, "strict", 1_000, None)


def test_a_deleted_endpoint_is_gone_and_late_events_about_it_do_not_bring_it_back() -> None:
    gone = folded(CREATED, ev.EndpointDeleted(**OF), ev.EndpointDisabled(**OF, why="failing"))

    assert gone.endpoints == {}
    assert gone.endpoint_by_name(WH[3:]) is None
    assert folded(CREATED).endpoints_of("t_b") == ()
    assert [each.id for each in folded(CREATED).endpoints_of("t_a")] == [WH]


def test_hosts_and_rotations_of_a_tenant_are_folded_and_old_events_read_as_before() -> None:
    hosts = ("app.example", "*.app.example")
    state = folded(
        ev.TenantCreated(tenant_id="t_a", webhook_hosts=hosts),
        ev.TenantWebhookSecretRotated(tenant_id="t_a", old_until_ms=5),
        ev.TenantPaused(tenant_id="t_a"),
    )

    assert (state.tenants["t_a"].webhook_hosts, state.tenants["t_a"].webhook_version) == (hosts, "1001-0")
    assert folded(ev.TenantCreated(tenant_id="t_b")).tenants["t_b"].webhook_hosts is None


def test_patterns_mean_only_what_webhooks_carry() -> None:
    def wanted(*events: str) -> set[str]:
        endpoint = Endpoint(WH, "t_a", "https://a.example", events)
        return {name for name in {*ev.CATALOGUE, "job.dreamt"} if endpoint.wants(name)}

    assert wanted("*") == ev.WEBHOOK_EVENTS, (
        "what tells of other endpoints is of another shape, and is asked for by name"
    )
    assert wanted("*", "webhook.*") == SUBSCRIBABLE
    assert wanted("job.*") == {name for name in ev.WEBHOOK_EVENTS if name.startswith("job.")}
    assert wanted("thumbnail.ready", "webhook.endpoint_failing") == {"thumbnail.ready", "webhook.endpoint_failing"}
    assert wanted() == set()
    assert "job.unassigned" not in wanted("*", "job.*", "job.unassigned")
    assert "webhook.attempted" not in wanted("*", "webhook.*"), "no webhook about a webhook"
    good = ("*", "job.*", "artifact.*", "webhook.*", "job.completed")
    bad = ("", "job", "job*", "jo.*", "*.completed", "job.unassigned", "job.done", "job.*.x", "**", ".*", "tenant.*")
    assert [text for text in good if not is_pattern(text)] == []
    assert [text for text in bad if is_pattern(text)] == []


@given(st.sampled_from(sorted(SUBSCRIBABLE)))
def test_each_event_is_meant_by_its_name_its_family_and_if_it_is_of_a_job_the_star(name: str) -> None:
    family = name.partition(".")[0] + ".*"
    assert all(matches(pattern, name) for pattern in (name, family))
    assert matches("*", name) == (name in ev.WEBHOOK_EVENTS)
    assert not matches(family[:-1], name)


secrets = st.builds(SigningSecret, st.text(min_size=1), st.none() | st.integers(0, 10**13))
privates = st.builds(
    Private, st.text(), st.dictionaries(st.text(), st.text()), st.lists(secrets, max_size=5).map(tuple)
)


@given(privates)
def test_what_is_kept_reads_back_and_is_never_in_a_repr(private: Private) -> None:
    assert read_private("endpoint:x", private.to_json()) == private
    assert repr(private) == "Private()"
    assert all(repr(known).startswith("SigningSecret(until_ms=") for known in private.secrets)


@given(privates, st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=8))
def test_a_rotation_lets_the_old_secret_sign_until_then_and_no_longer(
    private: Private, rotations: list[tuple[int, int]]
) -> None:
    """Field case 112: both sign during the overlap, the newest first; after it only the new one."""
    now_ms = 0
    for number, (pause_ms, overlap_ms) in enumerate(rotations):
        now_ms += pause_ms
        before = private.signing(now_ms)
        private = private.rotated(f"new-{number}", now_ms, now_ms + overlap_ms)

        during = private.signing(now_ms)
        assert during[0] == f"new-{number}"
        assert set(during[1:]) <= set(before)
        assert overlap_ms == 0 or during[1:] == before[: MOST_SECRETS - 1]
        assert private.signing(now_ms + overlap_ms) == (f"new-{number}",)
        assert len(private.secrets) <= MOST_SECRETS


def test_a_secret_of_before_rotations_is_one_that_signs_and_a_broken_one_is_never_quoted() -> None:
    assert read_private("webhook:t_a", "whsec_x").signing(1) == ("whsec_x",)
    for broken in ('{"secrets":[{"secret":"whsec_x"}]}', "{whsec_x", '{"url":1,"secrets":7}'):
        with pytest.raises(Corrupt) as caught:
            read_private("webhook:t_a", broken)
        assert "whsec_x" not in f"{caught.value!r}{caught.value.__cause__!r}"


def test_ids_of_endpoints_and_the_endpoint_in_a_delivery() -> None:
    job = mint_job_id(1, 2, "aa")
    assert is_endpoint_id(WH)
    assert not is_endpoint_id("wh_anon0123456789ab")
    assert endpoint_of(delivery_id(job, 3, WH[3:], 0)) == WH[3:]
    for wrong in (WH, job, "dlv_x", delivery_id(job, 3, "a_b", 0), delivery_id(job, 3, WH[3:], 0) + "\n"):
        with pytest.raises(BadId):
            endpoint_of(wrong)


@given(st.text(max_size=80), st.text(max_size=1_100))
def test_a_header_that_may_be_sent_is_one_line_of_printable_ascii_and_none_of_ours(name: str, value: str) -> None:
    """Field case 113: whatever passes can neither end its line nor take the place of a header of the sender."""
    if name_fault(name) is None and value_fault(value) is None:
        line = f"{name}: {value}"
        assert all(" " <= each <= "~" or each == "\t" for each in line)
        assert line.partition(": ") == (name, ": ", value)
        assert value == value.strip()
        assert name.lower() not in ("host", "connection")
        assert not name.lower().startswith(("webhook-", "content-"))


labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
hosts = st.lists(labels, min_size=1, max_size=4).map(".".join)


@given(hosts, hosts, st.sampled_from(("", ":443", ":8443")), st.sampled_from(("", "/", "/x?y=z", "?a.b")))
def test_a_listed_host_is_that_host_and_a_star_is_what_lies_below(host: str, above: str, port: str, path: str) -> None:
    """Field case 113: no prefix, suffix, case, port or path makes one host pass for another."""
    url = f"https://{host.upper()}{port}{path}"
    assert is_host_pattern(host)
    assert is_listed(url, [host])
    assert is_listed(f"https://{host}.{port}{path}", [host])
    assert is_listed(f"https://{above}.{host}{port}{path}", [f"*.{host}"])
    assert not is_listed(url, [f"*.{host}"])
    assert not is_listed(f"https://x{host}{port}{path}", [host, f"*.{host}"])
    assert not is_listed(f"https://{host}.{above}x{port}{path}", [host])
    assert not is_listed(f"https://else.example/{host}", [host]) or host == "else.example"
    assert not is_listed(url, [])
