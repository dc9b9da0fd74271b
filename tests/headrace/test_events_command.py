"""`headrace events`: list, get, export, import."""

import json
import subprocess
import sys
from pathlib import Path

from tests.headrace.up_process import Up, plain_environment
from tests.headrace.warm import Done, headrace


def submit(up: Up) -> str:
    done = headrace(up, "jobs", "submit", "an onion", "--model", "echo", "--watch", "-o", "ndjson")
    assert done.exit_code == 0, done.err
    return str(done.lines[-1]["id"])


def events(up: Up, *words: str) -> Done:
    return headrace(up, "events", *words)


def test_an_export_is_whole_and_goes_into_an_empty_instance_only(up: Up, tmp_path: Path) -> None:
    """What was taken home can be looked at elsewhere, and one that is not whole is refused."""
    job_id = submit(up)
    file = tmp_path / "log.ndjson"

    listed = events(up, "list", "--job", job_id, "-o", "json").json["data"]
    got = events(up, "get", listed[0]["id"], "-o", "json").json
    done = events(up, "export", str(file))

    assert got == listed[0] | {"hash": got["hash"]}
    assert done.exit_code == 0, done.err
    exported = [json.loads(line) for line in file.read_text().splitlines()]
    assert [each for each in exported if each.get("subject") == job_id] == listed
    assert exported[-1]["count"] == len(exported) - 1

    home = tmp_path / "other"
    settings = {"HEADRACE_DATA_DIR": str(home)}
    home.mkdir()
    for bad in (_without(file, 0), _without(file, -1), _without(file, 2)):
        refused = headrace(up, "events", "import", str(bad), folder=tmp_path, **settings)
        assert refused.exit_code == 1, refused.err
    imported = headrace(up, "events", "import", str(file), folder=tmp_path, **settings)
    assert imported.exit_code == 0, imported.err
    again = headrace(up, "events", "import", str(file), folder=tmp_path, **settings)
    assert again.exit_code == 1
    assert "has a log already" in again.err


def test_a_job_that_completed_is_not_run_again(up: Up) -> None:
    refused = headrace(up, "jobs", "retry", submit(up))

    assert refused.exit_code == 5
    assert "not_retryable" in refused.err


def test_a_cancelled_job_runs_again_and_tail_tells_of_it(up: Up) -> None:
    """By the real scheduler and worker; the log is followed from the past into the present."""
    assert headrace(up, "pool", "pause", "default", "--reason", "a test").exit_code == 0
    try:
        job_id = headrace(up, "jobs", "submit", "an onion", "--model", "echo", "-o", "json").json["id"]
        headrace(up, "jobs", "cancel", job_id)
        command = [sys.executable, "-m", "headrace", "events", "tail", "--job", job_id, "--since", "1h", "-o", "ndjson"]
        tail = subprocess.Popen(
            command, cwd=up.data_dir.parent, env=plain_environment(), stdout=subprocess.PIPE, text=True
        )
        assert headrace(up, "jobs", "retry", job_id, "-o", "json").json["status"] == "queued"
    finally:
        headrace(up, "pool", "resume", "default", "--reason", "a test")
    assert tail.stdout is not None
    told: list[str] = []
    while not told or told[-1] != "job.completed":
        told.append(json.loads(tail.stdout.readline())["type"])
    tail.terminate()
    tail.communicate()

    assert told[:3] == ["job.created", "job.cancelled", "job.retried"]
    assert len(told) == len(set(told))


def _without(file: Path, number: int) -> Path:
    lines = file.read_bytes().splitlines(keepends=True)
    del lines[number]
    bad = file.with_name(f"bad{number}.ndjson")
    bad.write_bytes(b"".join(lines))
    return bad
