"""`headrace dlq` and `consumers` against a real stack: a job that used up its attempts runs again by a command."""

from pathlib import Path

from tests.headrace.up_process import Up
from tests.headrace.warm import headrace


def test_a_dead_letter_is_counted_redriven_fails_again_and_is_discarded(up: Up, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text('{"policy": {"maxAttempts": 1}}')
    words = ("--model", "fails", "--input", "how=retry", "--body", str(body), "--watch", "-o", "ndjson")
    job_id = headrace(up, "jobs", "submit", "x", *words).lines[-1]["id"]

    (letter,) = headrace(up, "dlq", "list", "--model", "fails", "-o", "json").json["data"]
    assert (letter["id"], letter["tenantId"], letter["run"]) == (job_id, "t_default", 1)
    assert headrace(up, "dlq", "show", job_id, "-o", "json").json["job"]["status"] == "failed"
    counted = headrace(up, "dlq", "redrive", "--model", "fails", "--dry-run", "-o", "json")
    assert (counted.exit_code, counted.json["matched"]) == (0, 1)
    assert headrace(up, "dlq", "redrive", "--all").exit_code == 2  # without a reason
    assert headrace(up, "dlq", "redrive", "--reason", "r").exit_code == 2  # without saying which

    done = headrace(up, "dlq", "redrive", job_id, "--reason", "mended", "--rate", "50", "-o", "json")
    assert (done.exit_code, done.json["done"], done.json["state"]) == (0, 1, "completed")
    headrace(up, "jobs", "watch", job_id)
    (letter,) = headrace(up, "dlq", "list", "--code", letter["code"], "-o", "json").json["data"]
    assert (letter["id"], letter["run"], letter["attempts"]) == (job_id, 2, 2)

    off = headrace(up, "dlq", "discard", "--all", "--reason", "known", "-o", "json")
    assert (off.exit_code, off.json["verb"]) == (0, "discard")
    assert headrace(up, "dlq", "list", "-o", "json").json["data"] == []
    assert len(headrace(up, "dlq", "operations", "-o", "json").json["data"]) == 2
    types = [each["type"] for each in headrace(up, "events", "list", "--job", job_id, "-o", "ndjson").lines]
    assert types.count("job.redriven") == types.count("job.retried") == types.count("job.discarded") == 1
    assert headrace(up, "dlq", "webhooks", "list", "--state", "exhausted", "-o", "json").json["data"] == []
    assert headrace(up, "audit", "verify").exit_code == 0


def test_all_who_read_the_log_are_listed_and_ours_are_not_dropped(up: Up) -> None:
    groups = headrace(up, "consumers", "list", "--pool", "default", "-o", "json").json["data"]
    names = {each["group"] for each in groups if each["stream"] == "log"}

    assert names == {"scheduler", "notifier", "archivist"}
    assert all(each["active"] for each in groups if each["stream"] == "log"), groups
    assert {each["drop"] for each in groups} == {None}
    assert "unknown" in headrace(up, "consumers", "list").out  # of the archive nobody counts it
    assert headrace(up, "consumers", "drop", "default", "scheduler", "--reason", "r").exit_code == 5
    assert headrace(up, "consumers", "drop", "default", "x", "--reason", "r").exit_code == 3


def test_how_long_things_are_kept_is_shown_and_set(up: Up) -> None:
    before = headrace(up, "retention", "show", "-o", "json").json
    assert headrace(up, "retention", "set", "--failed", "soon").exit_code == 2
    words = ("--failed", "7d", "--live", "10m", "--pool", "default", "--reason", "audit", "-o", "json")
    changed = headrace(up, "retention", "set", *words).json
    assert (changed["failedSeconds"], changed["liveSeconds"]) == (604_800, 600)
    assert changed["completedSeconds"] == before["completedSeconds"]
    back = headrace(
        up, "retention", "set", "--failed", "default", "--live", "default", "--pool", "default", "-o", "json"
    )
    assert (back.json["failedSeconds"], back.json["changed"]) == (before["failedSeconds"], [])
