"""`headrace audit` beside a running stack."""

from tests.headrace.up_process import Up
from tests.headrace.warm import headrace


def test_a_stack_that_did_work_is_right(up: Up) -> None:
    """Field case 79: whatever the processes of a whole stack wrote, the read model is what the log says."""
    made = headrace(up, "jobs", "submit", "truth", "--model", "echo", "--watch")
    assert made.exit_code == 0, made.err

    done = headrace(up, "audit", "verify", "-o", "json")

    assert done.exit_code == 0, done.err
    pools = {each["pool"]: each for each in done.json["pools"]}
    assert set(pools) == {"default", "_sys"}
    assert all(each["ok"] and each["chainOk"] and not each["findings"] for each in pools.values())
    assert {each["differing"] for each in pools["default"]["projections"]} == {0}
    assert pools["default"]["events"] >= 4


def test_a_pool_that_is_none_is_said(up: Up) -> None:
    done = headrace(up, "audit", "verify", "--pool", "nowhere")

    assert (done.exit_code, "no pool nowhere" in done.err) == (2, True)


def test_checkpoints_are_listed_with_what_they_are_worth(up: Up) -> None:
    done = headrace(up, "audit", "checkpoints", "-o", "json")

    assert done.exit_code == 0, done.err
    assert all(row["genuine"] for row in done.json["data"])
