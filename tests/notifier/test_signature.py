"""Signatures against the reference library."""

import base64
import json
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from services.notifier.attempt.signature import parse_secret, sign, verify

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(32, 64))).decode()


@pytest.fixture(name="at_s")
def _at_s() -> int:
    """Now, of this test: the reference library refuses a time that is five minutes old."""
    return int(time.time())


def headers(signature: str, timestamp_s: int, message_id: str = "evt_1") -> dict[str, str]:
    return {"webhook-id": message_id, "webhook-timestamp": str(timestamp_s), "webhook-signature": signature}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        '{"text":"\U0001f600 na\u00efve"}'.encode(),
        '{"text":"a\u2028b"}'.encode(),
        b'{"big":123456789012345678901234567890,"float":1e-7}',
        b'{ "spaces" :\n 1 }',
    ],
)
@pytest.mark.parametrize("secret", [SECRET, SECRET.removeprefix("whsec_"), SECRET.rstrip("=")])
def test_the_reference_library_verifies_the_exact_bytes(body, secret, at_s):
    """Field case 111: secrets with and without prefix; emoji, U+2028, big ints and floats; empty body."""
    signature = sign([secret], "evt_1", at_s, body)

    Webhook(secret).verify(body, headers(signature, at_s), json_parse=False)
    assert signature == Webhook(secret).sign("evt_1", datetime.fromtimestamp(at_s, UTC), body.decode())


@pytest.mark.parametrize(
    "changed",
    [
        {"message_id": "evt_2"},
        {"timestamp_s": 1},
        {"body": b'{"a":2}'},
        {"secrets": [OTHER]},
    ],
)
def test_changing_id_time_body_or_secret_breaks_it(changed, at_s):
    """Field case 111: changing id, timestamp or one body byte fails."""
    good = {"secrets": [SECRET], "message_id": "evt_1", "timestamp_s": at_s, "body": b'{"a":1}'}
    signature = sign(**good)

    assert verify(**good, signature=signature)
    assert not verify(**(good | changed), signature=signature)
    sent = good | changed
    received = headers(signature, sent["timestamp_s"], sent["message_id"])
    with pytest.raises(WebhookVerificationError):
        Webhook(sent["secrets"][0]).verify(sent["body"], received)


def test_during_a_rotation_a_receiver_with_either_secret_verifies(at_s):
    """Field case 112: both secrets sign, separated by a space."""
    signature = sign([SECRET, OTHER], "evt_1", at_s, b"{}")

    assert [part[:3] for part in signature.split(" ")] == ["v1,", "v1,"]
    assert Webhook(SECRET).verify(b"{}", headers(signature, at_s)) == {}
    assert Webhook(OTHER).verify(b"{}", headers(signature, at_s)) == {}


@pytest.mark.parametrize("secret", ["whsec_!!!", "whsec_c2hvcnQ=", "hunter2 hunter2", "whsec_é", "whsec_"])
def test_an_unusable_secret_is_refused_and_not_repeated_in_the_error(secret):
    with pytest.raises(ValueError, match="webhook secret") as caught:
        parse_secret(secret)
    assert secret not in str(caught.value)


def test_no_secret_and_a_dotted_id_are_refused():
    with pytest.raises(ValueError, match="no webhook secret"):
        sign([], "evt_1", 1, b"")
    with pytest.raises(ValueError, match="dot"):
        sign([SECRET], "evt_1.2", 1, b"")


@given(st.binary(), st.integers(0, 2**40), st.integers(0, 10**6), st.data())
def test_one_flipped_bit_anywhere_fails(body, timestamp_s, place, data):
    signature = sign([SECRET], "evt_1", timestamp_s, body)
    assert verify([SECRET], "evt_1", timestamp_s, body, signature)
    if body:
        broken = bytearray(body)
        broken[place % len(body)] ^= 1 << data.draw(st.integers(0, 7))
        assert not verify([SECRET], "evt_1", timestamp_s, bytes(broken), signature)


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.floats(allow_nan=False)))
def test_any_json_body_verifies(value):
    body = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    at_s = int(time.time())
    Webhook(SECRET).verify(body, headers(sign([SECRET], "evt_1", at_s, body), at_s))
