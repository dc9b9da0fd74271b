"""Settings: a value that could only do harm later is refused at start, with its name and what to write."""

import base64

import pytest

from contracts.errors import ConfigError
from contracts.outbound.terms import Proxy, Route
from contracts.settings import load_settings

ADMIN_KEY = "HEADRACE_ADMIN__KEY"
POOL = "HEADRACE_WORKER__POOL"
PUBLIC_URL = "HEADRACE_PUBLIC_URL"
SOURCE = "HEADRACE_NOTIFIER__SOURCE"
SCHEDULE = "HEADRACE_WEBHOOK__SCHEDULE"
POLICY = "HEADRACE_SCHEDULER__POLICY__"


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        (POOL, "../x", "name"),  # it is part of keys and of a folder's name
        (POOL, "a}:log", "name"),
        (POOL, "_sys", "name"),
        (POOL, "", "name"),
        (ADMIN_KEY, "", "16 to 256"),  # an empty secret file locks everybody out, a short key lets everybody in
        (ADMIN_KEY, "short", "16 to 256"),
        (ADMIN_KEY, "k" * 257, "16 to 256"),
        (ADMIN_KEY, "two words are not one key", "16 to 256"),
        (PUBLIC_URL, "javascript:alert(1)", "https://"),
        (PUBLIC_URL, "headrace.example", "https://"),
        (PUBLIC_URL, "https://", "https://"),
        (PUBLIC_URL, "https://headrace.example/?a=b", "https://"),
        (PUBLIC_URL, "https://user:secret@headrace.example", "https://"),
        (SCHEDULE, "0,soon", "in seconds"),
        (SOURCE, "redis", "kafka://host:port/topic"),
        (SOURCE, "kafka://broker/events", "kafka://host:port/topic"),
        (SOURCE, "kafka://user:secret@broker:9092/events", "kafka://host:port/topic"),
        (SOURCE, "kafka://broker:9092", "kafka://host:port/topic"),
        ("HEADRACE_KAFKA__MIRROR", "broker:9092/events", "kafka://host:port/topic"),
        ("HEADRACE_KAFKA__SASL", "GSSAPI", "SCRAM-SHA-512"),
        ("HEADRACE_WORKER", "3", "HEADRACE_WORKER__"),
        ("HEADRACE_INGEST__PORT", "eighty", "integer"),
        (f"{POLICY}TIER_WEIGHTS", "enterprise", "tier=number"),
        (f"{POLICY}TIER_WEIGHTS__FREE", "0", "0.001"),
        (f"{POLICY}TIER_WEIGHTS__FREE", "inf", "finite"),
        (f"{POLICY}TIER_FLOORS", "enterprise=0.5,standard=0.31", "0.81; they may take 0.8"),
        (f"{POLICY}LEAD_S", "-1", "0"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_name(name: str, value: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({name: value})

    fault = str(caught.value)
    assert fault.startswith(f"{name}: ")
    assert hint in fault.removeprefix(name)


def test_a_fault_never_tells_the_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({ADMIN_KEY: "my secret", "HEADRACE_CLIENT__KEY": "x" * 8, "HEADRACE_INGEST__PORT": "x"})

    assert "my secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (POOL, "gpu-large"),
        (ADMIN_KEY, "sk_live_0123456789abcdef"),
        (PUBLIC_URL, "https://headrace.example/api/"),
        (PUBLIC_URL, "http://[::1]:8080"),
        (PUBLIC_URL, ""),
        (f"{POLICY}TIER_FLOORS", "enterprise=0.5,standard=0.3"),
        (f"{POLICY}TIER_FLOORS", ""),
    ],
)
def test_what_makes_sense_is_taken(name: str, value: str) -> None:
    load_settings({name: value})


def test_a_lease_that_one_late_heartbeat_would_lose_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice HEARTBEAT_S"):
        load_settings({"HEADRACE_WORKER__LEASE_S": "1.5", "HEADRACE_WORKER__HEARTBEAT_S": "1"})
    load_settings({"HEADRACE_WORKER__LEASE_S": "2", "HEADRACE_WORKER__HEARTBEAT_S": "1"})


def test_a_topic_is_read_with_its_servers_and_none_means_the_logs() -> None:
    assert load_settings({}).notifier.topic() is None
    settings = load_settings({SOURCE: "kafka://one:9092,two:9093/events.v1"})
    assert settings.notifier.topic() == ("one:9092,two:9093", "events.v1")


def test_a_password_for_kafka_is_not_sent_in_the_clear_and_is_told_nowhere() -> None:
    given = {"SASL": "PLAIN", "USER": "me", "PASSWORD": "hunter2"}
    settings = {f"HEADRACE_KAFKA__{name}": value for name, value in given.items()}
    with pytest.raises(ConfigError, match="SCRAM-SHA-512") as caught:
        load_settings(settings)
    assert "hunter2" not in str(caught.value.faults)
    for half in ({"HEADRACE_KAFKA__SASL": "SCRAM-SHA-256"}, {"HEADRACE_KAFKA__USER": "me"}):
        with pytest.raises(ConfigError, match="set together"):
            load_settings(half)
    with pytest.raises(ConfigError, match="TLS=true"):
        load_settings({"HEADRACE_KAFKA__CA_FILE": "/etc/ca.pem"})
    kafka = load_settings(settings | {"HEADRACE_KAFKA__TLS": "true"}).kafka
    assert "hunter2" not in repr(kafka)
    assert load_settings(settings | {"HEADRACE_KAFKA__SASL": "SCRAM-SHA-256"}).kafka.topic() is None


def test_the_way_out_is_read_and_a_password_of_the_proxy_is_told_nowhere() -> None:
    names = "HEADRACE_WEBHOOK__NAMESERVERS", "HEADRACE_WEBHOOK__PROXY", "HEADRACE_WEBHOOK__PORTS"
    given = dict(
        zip(names, ("10.0.0.2, fd00::2,[fd00::3]:5353", "http://me:p%40ss@proxy:3128", "443, 8443"), strict=True)
    )
    webhook = load_settings(given).webhook
    assert webhook.nameservers == (("10.0.0.2", 53), ("fd00::2", 53), ("fd00::3", 5353))
    assert webhook.proxy == Proxy("proxy", 3128, "Basic " + base64.b64encode(b"me:p@ss").decode())
    assert webhook.route == Route(webhook.nameservers, webhook.proxy)
    assert webhook.ports == {443, 8443}
    assert base64.b64encode(b"me:p@ss").decode() not in repr(load_settings(given))
    assert load_settings(dict.fromkeys(names[:2], "")).webhook.route == Route()

    wrong = dict(zip(names, ("dns.example", "https://me:hunter2@proxy:3128/x", "443,0"), strict=True))
    with pytest.raises(ConfigError) as caught:
        load_settings(wrong)
    assert len(caught.value.faults) == 3
    assert all(name in str(caught.value.faults) for name in names)
    assert "hunter2" not in str(caught.value.faults)
