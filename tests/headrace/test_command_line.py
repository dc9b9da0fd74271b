"""The command line against a real stack: what it prints, and its exit codes."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.text import Text

from headrace.cli import app
from tests.headrace.up_process import PATIENCE_S, Up, plain_environment
from tests.headrace.warm import ROOT, Done, headrace


def new_headrace(up: Up, *words: str) -> Done:
    """Start it anew, as a person does."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words], capture_output=True, text=True, cwd=up.data_dir.parent,
        env=plain_environment(PYTHONPATH=str(ROOT)), timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def test_a_job_is_submitted_watched_read_and_listed(up: Up) -> None:
    words = ("jobs", "submit", "hello", "--model", "echo", "--user-id", "u_cli", "--watch", "-o", "ndjson")
    watched = new_headrace(up, *words)

    assert watched.exit_code == 0
    assert watched.lines[-1]["status"] == "completed"
    job_id = watched.lines[-1]["id"]
    assert headrace(up, "jobs", "get", job_id, "-o", "json").json["id"] == job_id
    listed = headrace(up, "jobs", "list", "--user-id", "u_cli", "-o", "json").json
    assert [job["id"] for job in listed["data"]] == [job_id]
    assert headrace(up, "jobs", "list", "-o", "ndjson").lines[0]["object"] == "job"
    assert job_id in new_headrace(up, "jobs", "list").out
    used = headrace(up, "usage", "-o", "json").json["data"]
    assert [line["jobsCompleted"] > 0 for line in used if line["model"] == "echo@1"] == [True]
    assert headrace(up, "usage", "--csv").out.splitlines()[0].startswith("day,model,jobsCreated,")
    assert "t_default" in headrace(up, "usage", "--all", "--group-by", "tenantId").out
    assert new_headrace(up, "jobs", "get", "job_00000000000000000000000000aa").exit_code == 3


def test_a_waiting_job_says_why_it_waits(up: Up) -> None:
    body = up.data_dir.parent / "later.json"
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    body.write_text(json.dumps({"runAt": tomorrow}))
    words = ("jobs", "submit", "later", "--model", "echo", "--body", str(body), "-o", "json")
    job_id = headrace(up, *words).json["id"]

    told = headrace(up, "jobs", "explain", job_id, "-o", "json").json
    assert (told["state"], [reason["code"] for reason in told["reasons"]]) == ("scheduled", ["not_before"])
    assert f"It was submitted to start at {tomorrow}" in headrace(up, "jobs", "explain", job_id).out
    assert "starts in about" in headrace(up, "jobs", "get", job_id).out
    assert headrace(up, "jobs", "cancel", job_id, "-o", "json").exit_code == 0


def test_a_repeat_with_the_same_idempotency_key_is_the_same_job(up: Up) -> None:
    words = ("jobs", "submit", "once", "--model", "echo", "--idempotency-key", "cli-1", "-o", "json")

    assert headrace(up, *words).json["id"] == headrace(up, *words).json["id"]


def test_a_running_job_is_cancelled_and_watching_it_is_exit_code_1(up: Up) -> None:
    job = headrace(up, "jobs", "submit", "x", "--model", "slow", "--input", "steps=1000", "-o", "json").json

    assert headrace(up, "jobs", "cancel", job["id"], "-o", "json").exit_code == 0
    watched = headrace(up, "jobs", "watch", job["id"], "-o", "json")

    assert watched.json["status"] == "cancelled"
    assert watched.exit_code == 1
    assert headrace(up, "jobs", "cancel", job["id"]).exit_code == 0


def test_cancelling_a_finished_job_is_exit_code_5(up: Up) -> None:
    job = headrace(up, "jobs", "submit", "x", "--model", "echo", "--watch", "-o", "json").json

    refused = headrace(up, "jobs", "cancel", job["id"], "-o", "json")

    assert refused.exit_code == 5
    assert json.loads(refused.err)["code"] == "already_terminal"
    assert refused.out == ""


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        (("jobs", "get", "job_00000000000000000000000000aa"), 3),
        (("jobs", "get", "../../admin/v1/tenants"), 2),
        (("jobs", "submit", "x", "--model", "no-such-model"), 2),
        (("jobs", "submit", "x", "--priority", "now"), 2),
        (("jobs", "submit"), 2),
        (("jobs", "list", "--limit", "0"), 2),
        (("jobs", "list", "--key-file", "/nowhere"), 4),
        (("jobs", "list", "--url", "http://127.0.0.1:1"), 7),
        (("jobs", "list", "--url", "ftp://127.0.0.1"), 2),
        (("jobs", "list", "--url", "127.0.0.1:8080"), 2),
        (("jobs", "submit", "x", "--input", "no-equals-sign"), 2),
        (("jobs", "submit", "x", "--model", "echo", "--input", f"seed={1 << 64}"), 2),
        (("jobs", "submit", "x", "--model", "echo", "--input", f"seed=[-{'9' * 6000}]"), 2),
        (("jobs", "submit", "x", "--idempotency-key", "a\r\nX-Header: b"), 2),
        (("jobs", "submit", "x", "--body", "/nowhere"), 2),
        (("tenant", "create", "t_default"), 5),
        (("key", "list", "t_absent"), 3),
        (("tenant", "limits", "t_absent"), 3),
        (("pool", "pause", "no-such-pool"), 3),
        (("model", "describe", ".."), 2),
        (("policy", "set", "--tier-weight", "free"), 2),
        (("policy", "set", "--lead-seconds", "3", "--reset", "leadSeconds"), 2),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(up: Up, words: tuple[str, ...], exit_code: int) -> None:
    done = headrace(up, *words)

    assert done.exit_code == exit_code, done.err
    assert done.out == ""
    assert done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "body", ["", "[]", "null", "{", '{"input": null}', '{"input": [1]}', '{"a": 99999999999999999999}', "\udcff"]
)
def test_a_body_file_that_is_no_request_is_a_usage_error(up: Up, tmp_path: Path, body: str) -> None:
    (tmp_path / "body.json").write_text(body, errors="surrogateescape")

    done = headrace(up, "jobs", "submit", "x", "--body", str(tmp_path / "body.json"))

    assert done.exit_code == 2
    assert "--body" in done.err
    assert "Traceback" not in done.err


def test_a_wrong_key_is_exit_code_4(up: Up, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk_local_0000000000000000_wrong")

    done = headrace(up, "jobs", "list", "--key-file", str(tmp_path / "key"), "--url", up.ready["url"])

    assert done.exit_code == 4


def test_a_tenant_gets_a_key_that_works_until_it_is_revoked(up: Up, tmp_path: Path) -> None:
    assert headrace(up, "tenant", "create", "t_cli", "--tier", "free", "-o", "json").json["id"] == "t_cli"
    assert "t_cli" in [tenant["id"] for tenant in headrace(up, "tenant", "list", "-o", "json").json["data"]]
    made = headrace(up, "key", "create", "t_cli", "--scope", "jobs:read", "-o", "json").json
    (tmp_path / "key").write_text(made["key"])
    with_key = {"HEADRACE_CLIENT__URL": up.ready["url"], "HEADRACE_CLIENT__KEY_FILE": str(tmp_path / "key")}

    assert headrace(up, "jobs", "list", "-o", "json", folder=tmp_path, **with_key).json["data"] == []
    listed = headrace(up, "key", "list", "t_cli", "-o", "json")
    assert [key["id"] for key in listed.json["data"]] == [made["id"]]
    assert made["key"] not in listed.out
    assert headrace(up, "key", "revoke", "t_cli", made["id"]).exit_code == 0

    assert headrace(up, "jobs", "list", folder=tmp_path, **with_key).exit_code == 4


def test_the_policy_is_shown_and_changed_with_a_reason(up: Up) -> None:
    words = ("--tier-weight", "free=2", "--lead-seconds", "20", "--no-hold", "--reason", "trial")

    changed = headrace(up, "policy", "set", *words, "-o", "json").json
    assert (changed["leadSeconds"], changed["hold"], changed["tierWeights"]["free"]) == (20, False, 2)
    reset = headrace(up, "policy", "set", "--reset", "tierWeights", "--reset", "leadSeconds", "--hold", "-o", "json")
    assert reset.json["changed"] == ["hold"]
    assert headrace(up, "policy", "get", "--pool", "default", "-o", "json").json == reset.json
    told = headrace(up, "audit", "actions", "--type", "policy.changed", "--oldest-first", "-o", "json").json["data"]
    assert (told[0]["reason"], told[0]["actor"][:4], told[0]["ip"]) == ("trial", "key_", "127.0.0.1")
    assert "trial" in headrace(up, "audit", "actions").out
    refused = headrace(up, "policy", "set", "--tier-floor", "free=0.3")
    assert (refused.exit_code, "/tierFloors" in refused.err) == (2, True)


@pytest.mark.parametrize(("noun", "name"), [("pool", "default"), ("tenant", "t_default"), ("model", "echo@1")])
def test_a_pause_is_shown_until_it_is_taken_back(up: Up, noun: str, name: str) -> None:
    assert headrace(up, noun, "pause", name, "--reason", "trial", "-o", "json").json["paused"] is True
    shown = headrace(up, noun, "list", "-o", "json").json["data"]
    assert [one["paused"] for one in shown if one.get("id", one.get("name")) == name.partition("@")[0]] == [True]
    assert headrace(up, noun, "resume", name, "-o", "json").json["paused"] is False


def test_a_worker_is_shown_told_what_to_hold_drained_and_called_back(up: Up) -> None:
    def worker() -> Any:
        (found,) = headrace(up, "worker", "list", "-o", "json").json["data"]
        return found

    def until(true: Callable[[Any], bool]) -> Any:
        ends_s = time.monotonic() + 60
        while not ((found := headrace(up, "worker", "list", "-o", "json").json["data"]) and true(found[0])):
            assert time.monotonic() < ends_s, found
        return found[0]

    def models(told: Any) -> list[str]:
        return [f"{model['model']} {model['state']}" for model in told["devices"][0]["models"]]

    first = worker()["id"]
    told = headrace(up, "worker", "load-model", first, "noop", "--reason", "trial", "-o", "json")
    assert (told.exit_code, told.json["id"]) == (0, first)
    until(lambda told: "noop@1 idle" in models(told))
    assert "noop@1 idle" in headrace(up, "worker", "list").out
    headrace(up, "worker", "evict-model", first, "noop@1")
    until(lambda told: "noop@1" not in " ".join(models(told)))
    assert headrace(up, "worker", "load-model", first, "nothing").exit_code == 3

    headrace(up, "worker", "drain", first, "--deadline-s", "5")
    until(lambda told: told["state"] == "drained")
    assert headrace(up, "worker", "describe", first, "-o", "json").json["state"] == "drained"
    headrace(up, "worker", "undrain", first)
    assert until(lambda told: told["state"] == "open")["id"] != first


def test_limits_and_weight_of_a_tenant_are_changed_and_taken_back(up: Up) -> None:
    headrace(up, "tenant", "create", "t_limits", "--weight", "0.5")
    words = ("tenant", "limits", "t_limits", "-o", "json")

    assert headrace(up, *words, "--concurrency", "2", "--gpu-seconds-per-day", "60").json["concurrency"] == 2
    assert headrace(up, *words, "--concurrency", "none").json["concurrency"] is None
    assert headrace(up, *words).json["gpuSecondsPerDay"] == 60
    assert headrace(up, *words, "--concurrency", "many").exit_code == 2
    updated = headrace(up, "tenant", "update", "t_limits", "--tier", "free", "-o", "json").json
    assert (updated["tier"], updated["weight"]) == ("free", 0.5)
    hosts = ("tenant", "update", "t_limits", "-o", "json", "--webhook-host", "app.example")
    assert headrace(up, *hosts, "--webhook-host", "*.b.example").json["webhookHosts"] == ["app.example", "*.b.example"]
    assert headrace(up, *hosts, "--any-webhook-host").exit_code == 2
    assert headrace(up, *hosts[:5], "--any-webhook-host").json["webhookHosts"] is None


def test_a_full_quota_is_exit_code_6(up: Up, tmp_path: Path) -> None:
    headrace(up, "tenant", "create", "t_full")
    made = headrace(up, "key", "create", "t_full", "-o", "json").json
    (tmp_path / "key").write_text(made["key"])
    assert headrace(up, "tenant", "limits", "t_full", "--queued-jobs", "0").exit_code == 0

    words = ("jobs", "submit", "x", "--model", "echo", "--url", up.ready["url"], "--key-file", str(tmp_path / "key"))

    assert headrace(up, *words).exit_code == 6


def test_the_version_is_printed_in_every_format(up: Up) -> None:
    assert headrace(up, "version", "-o", "json").json["headrace"]
    assert len(headrace(up, "version", "-o", "ndjson").lines) == 1
    assert "headrace" in new_headrace(up, "version").out


def _commands(group: Any, words: str = "headrace") -> Iterator[tuple[str, Any]]:
    yield words, group
    for name in group.list_commands(None) if hasattr(group, "list_commands") else ():
        yield from _commands(group.get_command(None, name), f"{words} {name}")


def test_no_part_of_a_help_text_is_taken_for_markup() -> None:
    """`[default: 8080]` inside a help text is printed as nothing; defaults are told by `show_default`."""
    texts = [
        (words, str(text))
        for words, command in _commands(typer.main.get_command(app))
        for text in (command.help, *(getattr(parameter, "help", "") for parameter in command.params))
    ]

    assert len(texts) > 50
    assert [(words, text) for words, text in texts if Text.from_markup(text).plain != text] == []


def test_many_jobs_are_submitted_changed_and_cancelled(up: Up, tmp_path: Path) -> None:
    body = {"userId": "u_batch", "model": "slow", "prompt": "x", "input": {"steps": 1000}}
    lines = [json.dumps(body | {"metadata": {"n": str(n)}}) for n in range(3)]
    (tmp_path / "jobs.ndjson").write_text("\n".join([*lines, '{"userId":"u_batch","model":"none","prompt":"x"}']))
    words = ("jobs", "batch", str(tmp_path / "jobs.ndjson"), "--idempotency-key", "file-1")

    made = headrace(up, *words, "-o", "json")
    again = headrace(up, *words)

    assert made.exit_code == again.exit_code == 1
    assert [item["status"] for item in made.json["data"]] == [201, 201, 201, 422]
    ids = [item["job"]["id"] for item in made.json["data"][:3]]
    assert all(job_id in again.out for job_id in ids)
    assert "1 of 4 were refused" in again.err
    assert "/jobs/3/model" in again.out

    changed = headrace(up, "jobs", "update", ids[2], "--priority", "high", "-m", "n=9", "-o", "json")
    assert (changed.json["priority"], changed.json["metadata"]) == ("high", {"n": "9"})
    assert headrace(up, "jobs", "update", ids[2], "--webhook-event", "job.failed").exit_code == 2  # it has no webhook
    assert headrace(up, "jobs", "update", ids[2], "--priority", "low", "--if-match", "1").exit_code == 5
    assert headrace(up, "jobs", "update", ids[2]).exit_code == 2

    question = ("jobs", "cancel", "--filter", "userId=u_batch", "--filter", "metadata.n=9")
    counted = headrace(up, *question, "--dry-run", "-o", "json")
    assert (counted.json["matched"], counted.json["cancelled"], counted.json["sample"]) == (1, 0, [ids[2]])
    assert headrace(up, *question, "-o", "json").json["matched"] == 1
    several = headrace(up, "jobs", "cancel", *ids[:2], "job_1", "-o", "json")
    assert (several.exit_code, several.json["matched"], several.json["failed"]) == (1, 2, 1)
    assert headrace(up, "jobs", "cancel", "--all", "--filter", "q=job_").exit_code == 2
    assert headrace(up, "jobs", "cancel", "--filter", "prio=low").exit_code == 2


def test_jobs_are_erased_when_somebody_is_sure(up: Up) -> None:
    words = ("jobs", "submit", "s3cret", "--model", "echo", "--user-id", "u_gone", "-o", "json")
    done = headrace(up, *words, "--watch").json["id"]
    open_one = headrace(up, *words[:4], "slow", *words[5:], "--input", "steps=1000").json["id"]
    of_user = ("jobs", "erase", "--user", "u_gone", "-o", "json")

    assert headrace(up, "jobs", "erase", done).exit_code == 2  # nobody is there to be asked
    assert headrace(up, "jobs", "erase", done, "--user", "u_gone", "--yes").exit_code == 2
    counted = headrace(up, *of_user, "--dry-run")
    assert (counted.exit_code, counted.json["matched"], counted.json["open"]) == (0, 2, 1)
    assert headrace(up, "jobs", "erase", open_one, "--yes").exit_code == 5
    erased = headrace(up, *of_user, "--yes", "--reason", "asked")
    assert (erased.exit_code, erased.json["erased"], erased.json["open"]) == (1, 1, 1)
    assert "cancel them" in erased.err
    headrace(up, "jobs", "cancel", open_one)
    headrace(up, "jobs", "watch", open_one)
    assert headrace(up, *of_user, "--yes").json["erased"] == 1

    until_s = time.monotonic() + PATIENCE_S
    while "archivist" in (told := headrace(up, "jobs", "erase", done, "--yes", "-o", "json")).err:
        assert time.monotonic() < until_s
    assert told.json["data"][0]["complete"]
    assert headrace(up, "jobs", "get", done, "-o", "json").json["prompt"] is None
    assert headrace(up, "audit", "verify").exit_code == 0


def test_the_jobs_of_the_log_are_simulated(up: Up) -> None:
    headrace(up, "jobs", "submit", "hello", "--model", "echo", "--user-id", "u_cli", "--watch", "-o", "ndjson")

    done = headrace(up, "policy", "simulate", "--from", "2020-01-01T00:00:00Z", "--devices", "sim:1GiB*2", "-o", "json")

    assert done.exit_code == 0, done.err
    assert done.json["data"][0]["jobs"] >= 1
    assert done.json["neverStartedBefore"] == 0


def test_no_option_is_called_after_a_name_that_python_has_taken() -> None:
    """`type_` is `--type` to people, not `--type-`."""
    options = {
        f"{words} {name}"
        for words, command in _commands(typer.main.get_command(app))
        for parameter in command.params
        for name in parameter.opts
    }

    assert len(options) > 300
    assert not {option for option in options if option.endswith("-")}
