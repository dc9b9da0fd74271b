"""`headrace policy simulate` on a file of events."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli import app
from headrace.exits import Exit


def simulate(*words: str) -> Result:
    return CliRunner().invoke(app, ["policy", "simulate", *words])


@pytest.fixture
def events(tmp_path: Path) -> Path:
    slot = {"index": 0, "device": "d", "kind": "sim", "bytes": 1 << 30}
    lines = [_line(0, "worker.registered", "w", workerId="w", host="h", pid=1, slots=[slot])]
    for number in range(6):
        job = f"job_{number}"
        lines += [
            _line(1, "job.created", job, tenantId=f"t_{number % 2}", model="m", timeoutMs=60_000),
            _line(2, "job.started", job, workerId="w", offerId="o", slot=0, device="d", attempt=1, warm=True),
            _line(9, "job.device_released", job, gpuMs=2000),
            _line(9, "job.completed", job, attempt=1),
        ]
    path = tmp_path / "events.ndjson"
    path.write_text("\n".join(lines) + "\n")
    return path


def _line(second: int, kind: str, subject: str, **data: object) -> str:
    return json.dumps({"type": kind, "subject": subject, "time": f"2026-11-30T00:00:0{second}.5Z", "data": data})


def test_before_and_after_stand_side_by_side(events: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights.json"
    weights.write_text('{"t_0": 2}')

    done = simulate(
        "--events", str(events), "--devices", "sim:1GiB*3", "--weights", str(weights), "--set", "lead_s=30",
        "-o", "json",
    )  # fmt: skip

    assert done.exit_code == Exit.OK, done.output
    page = json.loads(done.stdout)
    assert [(row["of"], row["jobs"]) for row in page["data"]] == [
        ("all", 6), ("tier standard", 6), ("tenant t_0", 3), ("tenant t_1", 3)
    ]  # fmt: skip
    assert (page["data"][0]["p99BeforeS"], page["data"][0]["p99AfterS"]) == (10, 2)
    assert page["neverStartedBefore"] == page["neverStartedAfter"] == 0
    assert "usefulShareBefore" in simulate("--events", str(events)).stdout


def test_a_recorded_cap_counts_on_both_sides(events: Path) -> None:
    rules = {tenant: {"tier": "standard", "concurrency": 1} for tenant in ("t_0", "t_1")}
    told = _line(0, "policy.applied", "scheduler", position="1-0", weights={"t_0": 3, "t_1": 3}, tenants=rules)
    events.write_text(f"{told}\n{events.read_text()}")

    done = simulate("--events", str(events), "--devices", "sim:1GiB*6", "-o", "json")

    first = json.loads(done.stdout)["data"][0]
    assert (first["p99BeforeS"], first["p99AfterS"]) == (10, 4)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set", "speed=1"], "no knob 'speed'"),
        (["--set", "lead_s=-1"], "lead_s"),
        (["--devices", "gpu"], "--devices"),
        (["--from", "2026-12-01T00:00:00Z"], "no jobs in the range"),
        (["--from", "2026-11-30T00:00:00"], "no time zone"),
        (["--to", "yesterday"], "neither RFC 3339 nor a position"),
    ],
)
def test_bad_input_is_told(events: Path, words: list[str], told: str) -> None:
    done = simulate("--events", str(events), *words)

    assert (done.exit_code, told in done.stderr) == (Exit.USAGE, True), done.output


@pytest.mark.parametrize(
    "line",
    [
        "{", "[]", '{"type": "job.created"}', '{"type": "job.created", "subject": "j", "time": "2026", "data": {}}',
        '{"type": "job.created", "subject": "j", "position": "aa.1.5-0", "data": {"model": "m"}}',
    ],
)  # fmt: skip
def test_a_malformed_line_is_told_with_its_number(events: Path, line: str) -> None:
    events.write_text(f"{events.read_text()}\n{line}\n")

    done = simulate("--events", str(events))

    assert (done.exit_code, "line 27: " in done.stderr) == (Exit.USAGE, True), done.output


def test_a_range_or_a_file_is_needed() -> None:
    assert simulate().exit_code == Exit.USAGE
