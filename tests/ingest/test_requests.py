"""Bodies of requests: everything wrong with one is said at once, where it is."""

from datetime import UTC, datetime

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.admin_api import KeyCreate, TenantCreate
from contracts.api import GenerationJobData
from services.ingest.edge.problems import Problem
from services.ingest.requests import json_pointer, parse_body, run_at_ms

OK = {"userId": "u_42", "prompt": "an onion", "model": "scenes", "webhookUrl": "https://app.example/hook"}
NOW_MS = 1_764_457_200_000


def read(**fields: object) -> GenerationJobData:
    return parse_body(GenerationJobData, orjson.dumps(OK | fields))


def faults(**fields: object) -> list[tuple[str, str]]:
    with pytest.raises(Problem) as caught:
        read(**fields)
    assert caught.value.kind.status == 422
    return [(fault.pointer, fault.code) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"webhok": 1}, ("/webhok", "unknown_field")),
        ({"policy": {"maxQueueLenght": 5}}, ("/policy/maxQueueLenght", "unknown_field")),
        ({"userId": 5}, ("/userId", "wrong_type")),
        ({"userId": ""}, ("/userId", "too_short")),
        ({"userId": "a" * 300}, ("/userId", "too_long")),
        ({"userId": "a\n{b}"}, ("/userId", "bad_format")),
        ({"prompt": None}, ("/prompt", "wrong_type")),
        ({"prompt": "x" * 65_537}, ("/prompt", "too_long")),
        ({"priority": -1}, ("/priority", "unknown_value")),
        ({"priority": "Urgent"}, ("/priority", "unknown_value")),
        ({"policy": {"maxAttempts": 0}}, ("/policy/maxAttempts", "too_small")),
        ({"policy": {"maxAttempts": True}}, ("/policy/maxAttempts", "wrong_type")),
        ({"policy": {"startBySeconds": 1.0}}, ("/policy/startBySeconds", "wrong_type")),
        ({"policy": {"executionTimeoutSeconds": 10**9}}, ("/policy/executionTimeoutSeconds", "too_large")),
        ({"input": []}, ("/input", "wrong_type")),
        ({"input": {"prompt": "x"}}, ("/input/prompt", "contradiction")),
        ({"webhookEvents": ["job.finished"]}, ("/webhookEvents/0", "unknown_value")),
        ({"webhookEvents": []}, ("/webhookEvents", "contradiction")),
        ({"webhookEvents": ["job.completed"], "webhookUrl": None}, ("/webhookEvents", "contradiction")),
        ({"runAt": "2026-11-29T23:00:00"}, ("/runAt", "bad_format")),
        ({"runAt": 1_764_457_200}, ("/runAt", "wrong_type")),
        ({"metadata": {"a/b": "x"}}, ("/metadata/a~1b", "bad_format")),
        ({"metadata": {"a": "x" * 513}}, ("/metadata/a", "too_long")),
        ({"metadata": {str(n): "" for n in range(17)}}, ("/metadata", "too_long")),
        ({"metadata": {"a": 1}}, ("/metadata/a", "wrong_type")),
    ],
)
def test_a_wrong_field_is_named_by_its_pointer(fields: dict[str, object], expected: tuple[str, str]) -> None:
    """Field cases 7 and 98: 422 at POST with a field path."""
    assert faults(**fields) == [expected]


def test_all_faults_are_reported_together() -> None:
    assert faults(priority="x", userId=1, extra=True) == [
        ("/userId", "wrong_type"),
        ("/priority", "unknown_value"),
        ("/extra", "unknown_field"),
    ]


def test_a_missing_field_is_named() -> None:
    with pytest.raises(Problem) as caught:
        parse_body(GenerationJobData, b"{}")

    assert [fault.pointer for fault in caught.value.faults] == ["/userId", "/prompt", "/model"]


def test_snake_case_is_read_and_named_as_the_caller_wrote_it() -> None:
    data = parse_body(GenerationJobData, b'{"user_id":"u","prompt":"p","model":"m","policy":{"max_attempts":2}}')
    assert (data.user_id, data.policy.max_attempts) == ("u", 2)

    with pytest.raises(Problem) as caught:
        parse_body(GenerationJobData, b'{"user_id":1,"prompt":"p","model":"m"}')
    assert caught.value.faults[0].pointer == "/user_id"


def test_one_field_in_both_spellings_is_refused() -> None:
    assert faults(user_id="someone else") == [("/user_id", "unknown_field")]


@pytest.mark.parametrize("raw", [b"[]", b'"x"', b"3", b"null"])
def test_a_body_that_is_no_object_is_422_and_bad_json_is_400(raw: bytes) -> None:
    with pytest.raises(Problem) as caught:
        parse_body(GenerationJobData, raw)
    assert caught.value.kind.status == 422

    with pytest.raises(Problem) as caught:
        parse_body(GenerationJobData, raw + b"}")
    assert caught.value.code == "malformed_json"


@pytest.mark.parametrize("tenant", ["t_" + "a" * 300, "t_a:b", "t_{a}", "t_*", "t_a\n", "acme", "T_A", ""])
def test_a_tenant_id_cannot_hold_anything_that_breaks_a_key(tenant: str) -> None:
    """Field case 7: 300 characters with `:` `{` `}` `*` and newline."""
    with pytest.raises(Problem) as caught:
        parse_body(TenantCreate, orjson.dumps({"id": tenant}))

    assert caught.value.faults[0].pointer == "/id"


def test_a_key_needs_scopes_that_exist() -> None:
    assert parse_body(KeyCreate, b'{"scopes":["jobs:read"]}').scopes == ("jobs:read",)
    for scopes in ([], ["root"], ["*"]):
        with pytest.raises(Problem):
            parse_body(KeyCreate, orjson.dumps({"scopes": scopes}))


def test_run_at_in_the_past_is_now_and_too_far_ahead_is_refused() -> None:
    at = datetime.fromtimestamp(NOW_MS / 1000, UTC).isoformat()
    assert run_at_ms(read(runAt=at), NOW_MS) is None
    assert run_at_ms(read(runAt=at), NOW_MS - 5_000) == NOW_MS
    with pytest.raises(Problem) as caught:
        run_at_ms(read(runAt="2999-01-01T00:00:00Z"), NOW_MS)
    assert caught.value.faults[0].pointer == "/runAt"


def test_a_job_that_would_expire_before_it_may_start_is_refused() -> None:
    at = datetime.fromtimestamp(NOW_MS / 1000 + 60, UTC).isoformat()

    with pytest.raises(Problem) as caught:
        run_at_ms(read(runAt=at, policy={"startBySeconds": 60}), NOW_MS)

    assert caught.value.faults[0].pointer == "/policy/startBySeconds"


@given(st.lists(st.text() | st.integers(0, 5), max_size=5).map(tuple), st.text())
def test_a_pointer_can_always_be_written(location: tuple[str | int, ...], key: str) -> None:
    assert len(json_pointer(location, {key: [{}]})) <= 256
