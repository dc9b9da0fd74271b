"""`headrace events`: list, get, export, import."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_parquet_needs_its_extra_and_a_file(up: Up, tmp_path: Path) -> None:
    """Nobody finds out in the middle of an export, and nothing is left behind."""
    hidden = tmp_path / "pyarrow.py"
    hidden.write_text("raise ImportError('not installed')")
    file = tmp_path / "log.parquet"
    environment = plain_environment() | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    command = [sys.executable, "-m", "headrace", "events", "export", str(file), "--format", "parquet"]
    without = subprocess.run(command, cwd=up.data_dir.parent, env=environment, capture_output=True, text=True)

    assert without.returncode == 2
    assert "pip install 'headrace[parquet]'" in " ".join(without.stderr.replace("│", " ").split())
    assert not list(tmp_path.glob("log.*"))


def test_a_parquet_file_holds_what_the_lines_hold(up: Up, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: make test EXTRAS=parquet")
    submit(up)
    lines, file = tmp_path / "log.ndjson", tmp_path / "log.parquet"

    assert events(up, "export", str(file), "--format", "parquet").exit_code == 0
    assert events(up, "export", "-", "--format", "parquet").exit_code == 2
    table = parquet.read_table(file)
    assert events(up, "export", str(lines)).exit_code == 0

    *told, end = [json.loads(line) for line in lines.read_text().splitlines()]
    rows = table.to_pylist()
    assert [row["id"] for row in rows] == [event["id"] for event in told][: len(rows)]
    for row, event in zip(rows, told, strict=False):
        same = {name: event.get(name) for name in ("type", "position", "sequence", "tenantId", "fence", "attempt")}
        assert row | same == row
        assert (json.loads(row["data"]), row["actorType"]) == (event["data"], event["actor"]["type"])
        assert row["time"].isoformat(timespec="milliseconds").replace("+00:00", "Z") == event["time"]
    assert parquet.read_metadata(file).metadata[b"headrace.count"] == str(len(rows)).encode()
    assert end["count"] >= len(rows) > 0


def test_a_job_that_completed_is_not_run_again(up: Up) -> None:
    refused = headrace(up, "jobs", "retry", submit(up))

    assert refused.exit_code == 5
    assert "not_retryable" in refused.err


def test_a_job_is_reproduced_and_the_verdict_is_the_exit_code(up: Up) -> None:
    job_id = submit(up)

    done = headrace(up, "jobs", "reproduce", job_id, "--wait", "-o", "json")
    table = headrace(up, "jobs", "reproduce", job_id)
    refused = headrace(up, "jobs", "reproduce", job_id[:-3] + "zzz")

    assert done.exit_code == 0, done.err
    assert done.json["reproduction"] == {"of": job_id, "match": "exact", "distance": 0.0, "changed": []}
    assert table.exit_code == 0
    assert job_id in table.out
    assert refused.exit_code == 3


def test_the_past_is_shown_as_a_stream_as_it_stood_and_under_another_policy(up: Up) -> None:
    job_id = submit(up)
    listed = events(up, "list", "--job", job_id, "-o", "json").json["data"]

    streamed = headrace(up, "replay", "stream", "--job", job_id, "-o", "ndjson")
    state = headrace(up, "replay", "state", "--at", listed[0]["position"], "--job", job_id, "-o", "json")
    whatif = headrace(up, "replay", "whatif", "--set", "leadSeconds=30", "-o", "json")
    assert whatif.exit_code == 0, whatif.err
    listing = headrace(up, "replay", "list", "-o", "json")
    assert listing.exit_code == 0, listing.err
    known = listing.json["data"]

    assert streamed.lines == listed, streamed.err
    assert state.exit_code == 0, state.err
    (then,) = state.json["data"]
    assert (then["id"], then["status"], then["sequence"]) == (job_id, "queued", 1)
    assert whatif.json["data"][0]["of"] == "all", whatif.err
    assert whatif.json["data"][0]["p99AfterS"] >= 0
    assert [each["mode"] for each in known[:2]] == ["project", "stream"]
    assert headrace(up, "replay", "delete", known[0]["id"]).exit_code == 0
    assert headrace(up, "replay", "list", "-o", "json").json["data"] == known[1:]


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
