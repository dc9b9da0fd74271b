"""What is told of a call, whatever it holds."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from headrace.webhooks.told import MOST_KNOWN, Seen, facts_of, line_of, printable

AT_S = 1_764_457_210.0
BODY = {"type": "job.completed", "timestamp": "2025-11-29T23:00:09.999Z", "jobId": "job_1", "status": "completed"}


def test_each_format_tells_what_it_holds() -> None:
    named = {"webhook-id": "evt_1", "webhook-attempt": "3"}
    standard = facts_of(named, orjson.dumps(BODY | {"sequence": 31}), AT_S)
    flat = facts_of(named, orjson.dumps({"jobId": "job_1", "status": "completed"}), AT_S)
    cloud = {"type": "job.completed", "time": BODY["timestamp"], "sequence": "00000000000000000031", "data": BODY}

    assert standard == {
        "id": "evt_1", "type": "job.completed", "jobId": "job_1", "status": "completed", "sequence": 31, "attempt": 3,
        "lagMs": 1,
    }  # fmt: skip
    assert facts_of(named, orjson.dumps(cloud), AT_S) == standard
    assert flat == standard | {"type": None, "sequence": None, "lagMs": None}


def test_repeats_and_what_is_older_are_marked() -> None:
    seen = Seen()
    calls = [{"id": f"evt_{n}", "jobId": "job_1", "sequence": n} for n in (1, 3, 3, 2)]

    marks = []
    for call in calls:
        marks.append(seen.mark(call))
        seen.take(call)

    assert marks[0] == marks[1] == {"repeat": False, "older": False}
    assert marks[2:] == [{"repeat": True, "older": False}, {"repeat": False, "older": True}]


def test_what_is_remembered_is_bounded() -> None:
    seen = Seen()
    for n in range(MOST_KNOWN + 5):
        seen.take({"id": f"evt_{n}", "jobId": f"job_{n}", "sequence": 1})

    assert (len(seen._ids), len(seen._sequences)) == (MOST_KNOWN, MOST_KNOWN)
    assert not seen.mark({"id": "evt_0", "jobId": "job_0", "sequence": 1})["repeat"]


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*BODY, "sequence", "data"]), inner),
    max_leaves=8,
)


_told = st.fixed_dictionaries({}, optional=dict.fromkeys([*BODY, "sequence", "data"], st.text() | _json))


@given((_told | _json).map(orjson.dumps) | st.binary(), st.text(), st.text())
def test_nothing_of_a_call_steers_a_terminal(body: bytes, message_id: str, attempt: str) -> None:
    told = facts_of({"webhook-id": message_id, "webhook-attempt": attempt}, body, AT_S)
    line = line_of(told | {"signature": "INVALID", "fault": "x"})

    assert line.isprintable()
    assert all(one.isprintable() or one in "\n\t" for one in printable(body))
