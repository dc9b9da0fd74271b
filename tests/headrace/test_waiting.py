"""A waiting job on a terminal: its place in a line, its reasons in words."""

from headrace.waiting import explanation_rows, queue_text


def test_a_job_that_does_not_wait_or_of_which_nobody_knows_says_nothing() -> None:
    assert queue_text({}) is None
    assert queue_text({"queue": {"pool": "default", "position": None, "etaSeconds": None}}) is None


def test_a_job_without_an_eta_says_so_and_a_scheduled_one_has_no_number() -> None:
    assert (
        queue_text({"queue": {"pool": "p", "position": 2, "etaSeconds": None}}) == "number 2 in p, nobody can say when"
    )
    scheduled = {"queue": {"pool": "p", "position": None, "etaSeconds": 60.0}}
    assert queue_text(scheduled) == "in p, starts in about 60 s"


def test_an_explanation_is_a_row_for_each_reason() -> None:
    told = {
        "jobId": "job_1", "pool": "p", "state": "queued", "ahead": 2, "etaSeconds": 700.0, "etaBasis": "average",
        "reasons": [{"code": "fair_share", "detail": "Others are owed.", "since": "2026-11-30T05:00:00.000Z"}],
        "wouldRunOn": [
            {"workerId": "wrk_1", "slot": 0, "warm": True, "freeInSeconds": 0.0},
            {"workerId": "wrk_2", "slot": 1, "warm": False, "freeInSeconds": 9.0},
        ],
    }  # fmt: skip

    assert explanation_rows(told) == {
        "job": "job_1",
        "state": "queued",
        "ahead": "2 jobs",
        "eta": "starts in about 12 min (average)",
        "fair_share": "Others are owed. Since 2026-11-30T05:00:00.000Z.",
        "would run on": "wrk_1/0 (warm, free now), wrk_2/1 (free in 9 s)",
    }
