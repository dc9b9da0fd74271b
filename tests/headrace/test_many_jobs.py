"""What the command line makes of files and filters before anything is sent."""

import pytest
import typer

from headrace.client import together
from headrace.many_jobs import MOST_BYTES, MOST_ITEMS, _filter, _parse, _requests


def test_a_file_is_an_array_an_object_with_jobs_or_lines() -> None:
    assert _parse(b'[{"a":1},{"a":2}]') == [{"a": 1}, {"a": 2}]
    assert _parse(b'{"jobs":[{"a":1}]}') == [{"a": 1}]
    assert _parse(b'{"a":1}') == [{"a": 1}]
    assert _parse(b'{"a":1}\n\n{"a":2}\n') == [{"a": 1}, {"a": 2}]
    for bad in (b'{"a":1}\n{', b'{"a":99999999999999999999}', b"[NaN]", b"[" * 100_000):
        with pytest.raises(ValueError, match=r"."):
            _parse(bad)


def test_a_long_file_is_cut_into_requests_that_the_server_takes_in_the_same_way_each_time() -> None:
    small, large = [{"n": n} for n in range(250)], [{"x": "y" * 300_000}] * 5

    assert [len(request) for request in _requests(small)] == [MOST_ITEMS, MOST_ITEMS, 50]
    assert [len(request) for request in _requests(large)] == [2, 2, 1]
    assert [each for request in _requests(small + large) for each in request] == small + large
    assert [len(request) for request in _requests([{"x": "y" * 2 * MOST_BYTES}])] == [1]


def test_filters_become_the_body_that_the_server_judges() -> None:
    found = _filter(["status=queued", "status=scheduled", "metadata.cart=9=9", "metadata.shop=a", "userId=u"])

    assert found == {
        "status": ["queued", "scheduled"], "metadata": {"cart": "9=9", "shop": "a"}, "userId": "u",
    }  # fmt: skip
    for bad in (["userId"], ["=x"], ["q=job_1", "q=job_2"]):
        with pytest.raises(typer.BadParameter):
            _filter(bad)


def test_the_counts_of_all_calls_are_added_up() -> None:
    first = {"id": "op_1", "state": "in_progress", "matched": 12, "cancelled": 10, "requested": 1, "skipped": 1,
             "failed": 0, "sample": list(range(10)), "failures": [], "hasMore": True}  # fmt: skip
    then = first | {"state": "completed", "failed": 1, "failures": [{"id": "x"}], "hasMore": False, "sample": [99]}

    both = together(first, then)

    assert (both["matched"], both["cancelled"], both["failed"], both["state"]) == (24, 20, 1, "completed")
    assert (both["sample"], both["failures"]) == (list(range(10)), [{"id": "x"}])
