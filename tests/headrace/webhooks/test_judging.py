"""What is believed of a webhook, and what is not."""

import base64
import time
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from contracts.webhook_keys import WebhookKey
from headrace.webhooks.judging import MALFORMED, MISSING, NO_MATCH, Trust, read_public_key, why_not
from services.notifier.attempt import signature

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
BODY = b'{"type":"job.completed"}'


def headers(secret: str = SECRET, age_s: float = 0) -> dict[str, str]:
    at = datetime.fromtimestamp(int(time.time() - age_s), UTC)
    signed = Webhook(secret).sign("evt_1", at, BODY.decode())
    return {"Webhook-Id": "evt_1", "webhook-timestamp": f"{at.timestamp():.0f}", "webhook-signature": signed}


def test_one_of_several_signatures_is_enough_as_in_a_rotation() -> None:
    both = headers()
    both["webhook-signature"] = f"{headers(OTHER)['webhook-signature']} v1a,AAAA {both['webhook-signature']}"

    assert why_not(Trust(SECRET), both, BODY) is None
    assert why_not(Trust(OTHER), both, BODY) is None


def test_another_secret_body_id_or_age_is_not_believed() -> None:
    assert why_not(Trust(SECRET), headers(), BODY) is None
    assert why_not(Trust(OTHER), headers(), BODY) == NO_MATCH
    assert why_not(Trust(SECRET), headers(), BODY + b" ") == NO_MATCH
    assert why_not(Trust(SECRET), headers() | {"Webhook-Id": "evt_2"}, BODY) == NO_MATCH
    assert why_not(Trust(SECRET), headers(age_s=600), BODY) == "Message timestamp too old"
    assert why_not(Trust(SECRET), headers(age_s=-600), BODY) == "Message timestamp too new"
    assert why_not(Trust(SECRET, at_any_time=True), headers(age_s=600), BODY) is None
    assert why_not(Trust(OTHER, at_any_time=True), headers(age_s=600), BODY) == NO_MATCH
    assert why_not(Trust(SECRET), {}, BODY) == MISSING


@pytest.mark.parametrize("signature", ["v1", "v1,a,b", "v1,\N{SNOWMAN}", "v1,*"])
def test_what_is_no_signature_is_not_believed(signature: str) -> None:
    for trust in (Trust(SECRET), Trust(SECRET, at_any_time=True)):
        assert why_not(trust, headers() | {"webhook-signature": signature}, BODY) in (MALFORMED, NO_MATCH)


def test_a_public_key_is_enough_for_signatures_of_its_private_half() -> None:
    key, at_s = WebhookKey(b"root"), int(time.time())
    named = {"webhook-id": "evt_1", "webhook-timestamp": str(at_s)}
    named["webhook-signature"] = "v1,AAAA " + key.sign(f"evt_1.{at_s}.".encode() + BODY)
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()

    assert why_not(Trust(public_key=read_public_key(key.text())), named, BODY) is None
    assert why_not(Trust(public_key=other), named, BODY) == NO_MATCH
    assert why_not(Trust(public_key=key.public), named, BODY + b" ") == NO_MATCH
    old = named | {"webhook-timestamp": str(at_s - 600)}
    assert why_not(Trust(public_key=key.public), old, BODY) == "Message timestamp too old"
    assert why_not(Trust(public_key=key.public, at_any_time=True), old, BODY) == NO_MATCH
    for bad in ("whpk_", "whpk_AAAA", "nothing", key.text() + "A"):
        with pytest.raises(ValueError, match="whpk_"):
            read_public_key(bad)


_anything = st.text(st.characters(codec="utf-8"), max_size=20)


@given(
    st.fixed_dictionaries({"webhook-id": _anything, "webhook-timestamp": _anything, "webhook-signature": _anything}),
    st.binary(max_size=20), st.booleans(),
)  # fmt: skip
def test_whatever_a_call_holds_is_judged(named: dict[str, str], body: bytes, at_any_time: bool) -> None:
    for trust in (Trust(SECRET, at_any_time=at_any_time), Trust(public_key=WebhookKey(b"r").public)):
        assert why_not(trust, named, body) is not None


@given(st.text(max_size=10), st.text(max_size=10), st.booleans(), st.booleans())
def test_our_own_code_and_the_package_judge_alike(signed: str, came: str, is_same: bool, is_ours: bool) -> None:
    now_s = int(time.time())
    body = signed if is_same else came
    value = signature.sign([SECRET if is_ours else OTHER], "evt_1", now_s, signed.encode())
    named = {"webhook-id": "evt_1", "webhook-timestamp": str(now_s), "webhook-signature": value}

    verdicts = [why_not(Trust(SECRET, at_any_time=each), named, body.encode()) for each in (False, True)]

    assert verdicts[0] == verdicts[1]
    assert (verdicts[0] is None) == (is_ours and body == signed)
