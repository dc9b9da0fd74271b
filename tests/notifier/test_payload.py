"""The webhook body."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.api import WebhookPayload
from contracts.signed_url import sign_path
from services.notifier.payload import BODY_BYTES_MAX, Links, Notice, public_facts, render

LINKS = Links("https://gen.example/", b"secret")


def notice(**changes) -> Notice:
    fields = {
        "event_type": "job.completed",
        "event_at_ms": 1764457209999,
        "job_id": "job_01",
        "status": "completed",
        "progress": 100,
        "sequence": 31,
        "position": "aa.1.1764457209999-0",
        "tenant_id": "t_acme",
        "result_url": "https://gen.example/v1/artifacts/art_1/content",
        "data": {"userId": "u_42", "metadata": {"path": "/mine"}},
    }
    return Notice(**(fields | changes))


def test_the_users_four_fields_are_on_top_and_the_result_is_a_link():
    body = orjson.loads(render(notice()))

    assert body == {
        "type": "job.completed",
        "timestamp": "2025-11-29T23:00:09.999Z",
        "jobId": "job_01",
        "status": "completed",
        "progress": 100,
        "resultUrl": "https://gen.example/v1/artifacts/art_1/content",
        "sequence": 31,
        "position": "aa.1.1764457209999-0",
        "tenantId": "t_acme",
        "data": {"userId": "u_42", "metadata": {"path": "/mine"}},
    }
    WebhookPayload.model_validate(body)


def test_paths_become_links_and_times_become_text_but_not_in_what_others_wrote():
    artifact = {"id": "art_1", "path": "/v1/artifacts/art_1/content", "expiresAtMs": 1764457209999}
    shown = {
        "id": "art_1",
        "url": "https://gen.example" + sign_path(b"secret", "/v1/artifacts/art_1/content", 1764457209),
        "expiresAt": "2025-11-29T23:00:09.999Z",
    }
    facts = {"artifacts": [artifact], "artifact": artifact, "nextAttemptAtMs": 0, "data": {"path": "/mine", "xAtMs": 1}}

    assert public_facts(facts, LINKS) == {
        "artifacts": [shown],
        "artifact": shown,
        "nextAttemptAt": "1970-01-01T00:00:00.000Z",
        "data": {"path": "/mine", "xAtMs": 1},
    }


def test_a_preview_that_never_expires_is_linked_without_a_signature():
    assert public_facts({"path": "/p", "step": 3}, LINKS) == {"url": "https://gen.example/p", "step": 3}


def test_a_job_without_a_result_says_so():
    assert orjson.loads(render(notice(result_url=None)))["resultUrl"] is None


@pytest.mark.parametrize("size", [BODY_BYTES_MAX, 5_000_000])
def test_a_big_result_is_left_out_whole_and_the_body_says_so(size):
    """Field case 107: a 5 MB result gives a bounded, valid body with a reference and `truncated`."""
    body = render(notice(data={"userId": "u_42", "result": {"text": "é" * size}}))

    assert len(body) <= BODY_BYTES_MAX
    parsed = orjson.loads(body)
    assert parsed["data"] == {"userId": "u_42", "truncated": True, "omitted": ["result"]}
    assert parsed["resultUrl"]


def test_what_fits_is_not_touched():
    data = {"text": "x" * (BODY_BYTES_MAX - 1000)}
    assert orjson.loads(render(notice(data=data)))["data"] == data


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=20), JSON), st.integers(0, 9000))
def test_every_body_is_valid_and_bounded_and_the_same_each_time(data, padding):
    data = {**data, "padding": ["x" * padding] * 3}
    body = render(notice(data=data))

    assert len(body) <= BODY_BYTES_MAX
    assert body == render(notice(data=data))
    WebhookPayload.model_validate(orjson.loads(body))


def test_even_thousands_of_members_stay_below_the_limit():
    body = render(notice(data={f"member{number}": number for number in range(5000)}))
    assert len(body) <= BODY_BYTES_MAX
    assert orjson.loads(body)["data"]["truncated"] is True
