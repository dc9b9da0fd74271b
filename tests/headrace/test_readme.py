"""The README is tried as a newcomer tries it: its pipeline is written to disk as it stands there, and run."""

import json
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from standardwebhooks import Webhook
from typer.main import get_command

from headrace import cli
from tests.headrace.up_process import PATIENCE_S, Up, plain_environment, start_up
from tests.headrace.warm import headrace

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str, after: str) -> list[str]:
    """The code blocks of a language in the section with this heading."""
    section = README.split(f"## {after}\n", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


def test_the_pipeline_of_the_readme_runs_as_it_stands_there(tmp_path: Path) -> None:
    section = "A pipeline is a plain Python file"
    [code], [table], [schema], [commands] = (blocks(each, section) for each in ("python", "toml", "json", ""))
    folder = tmp_path / "shout"
    folder.mkdir()
    (folder / "pipeline.py").write_text(code)
    (folder / "inputs.schema.json").write_text(schema)
    (tmp_path / "pipelines.toml").write_text(table)
    submit = next(line for line in commands.splitlines() if line.startswith("headrace jobs submit"))

    up = start_up(tmp_path / ".headrace", "--pipelines", str(tmp_path / "pipelines.toml"))
    try:
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(submit, comments=True), "-o", "ndjson"],
            cwd=tmp_path, env=plain_environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    finally:
        up.clean_up()

    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout.splitlines()[-1])
    assert job["status"] == "completed"
    assert [(one["kind"], one["bytes"]) for one in job["artifacts"]] == [("text", len("HELLO WORLD"))]


def test_each_command_of_the_readme_has_the_options_it_is_shown_with() -> None:
    shown = [*blocks("", "Talk to it"), *blocks("", "Webhooks")]
    own = [line for text in shown for line in text.splitlines() if line.startswith("headrace")]
    lines = [shlex.split(line, comments=True) for line in own]

    assert len(lines) >= 22
    for words in lines:
        command: Any = get_command(cli.app)
        for word in words[1:]:
            command = command.get_command(None, word) if hasattr(command, "get_command") else command
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, words


def test_the_receiver_of_the_readme_believes_what_is_signed_and_takes_each_event_once(tmp_path: Path, up: Up) -> None:
    """Field case 95: what comes late is answered and ignored, so the end of a job stays its end."""
    port = free_port()
    [code], commands = blocks("python", "Webhooks"), "".join(blocks("", "Webhooks")).replace("3000", str(port))
    (tmp_path / "hook.py").write_text(code.replace("3000", str(port)))

    def run(beginning: str, **ids: str) -> Any:
        line = next(line for line in commands.splitlines() if line.startswith(f"headrace webhook {beginning}"))
        words = [ids.get(word, word) for word in shlex.split(line, comments=True)[1:]]
        done = headrace(up, *words, "-o", "json")
        assert done.exit_code == 0, done.err
        return done.json

    made = run("endpoints create")
    app = subprocess.Popen(
        [sys.executable, "hook.py"], cwd=tmp_path, env=plain_environment(SECRET=made["secret"]), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until_open(port)
        assert app.stdout is not None
        sent = run("endpoints test", **{"wh_...": made["id"]})
        assert app.stdout.readline() == f"webhook.test {sent['jobId']} completed None\n"
        first = delivered(up, sent["id"])
        run("endpoints rotate", **{"wh_...": made["id"]})
        again = run("deliveries redeliver dlv", **{"dlv_...": sent["id"]})
        repeat = delivered(up, again["id"])
        job = headrace(up, "jobs", "submit", "x", "--model", "echo", "--watch", "-o", "ndjson").lines[-1]
        told = []  # of the repeat there is nothing; other tests' jobs may be told of
        while job["id"] not in told:
            told.append(app.stdout.readline().split()[1])
        assert sent["jobId"] not in told
        late = [post(port, made["secret"], "job_made_up", sequence) for sequence in (31, 30, 31, 32)]
        assert late == [204] * 4
        assert post(port, "whsec_" + "A" * 44, "job_made_up", 33) == 400
        post(port, made["secret"], "job_last", 1)
        while told[-1] != "job_last":
            told.append(app.stdout.readline().split()[1])
        assert told.count("job_made_up") == 2
    finally:
        app.kill()
        app.communicate()
        headrace(up, "webhook", "endpoints", "delete", made["id"])

    assert [each["attemptsMade"][0]["status"] for each in (first, repeat)] == [204, 204]
    assert (again["id"] != sent["id"], again["messageId"]) == (True, sent["messageId"])


def post(port: int, secret: str, job_id: str, sequence: int) -> int:
    """Call the receiver as the sender would; returns what it answers."""
    body = {"type": "job.x", "jobId": job_id, "status": "completed", "resultUrl": None, "sequence": sequence}
    text, now = json.dumps(body), datetime.now(UTC)
    headers = {"webhook-id": "evt_1", "webhook-timestamp": f"{now.timestamp():.0f}"}
    signed = Webhook(secret).sign("evt_1", datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC), text)
    request = urllib.request.Request(f"http://127.0.0.1:{port}/hook", text.encode(), headers, method="POST")
    request.add_header("webhook-signature", signed)
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as fault:
        return fault.code


def delivered(up: Up, delivery_id: str) -> Any:
    """Return a delivery when it is: the attempt is recorded after it was answered."""
    for _ in range(1_000):
        shown = headrace(up, "webhook", "deliveries", "show", delivery_id, "-o", "json").json
        if shown["state"] == "delivered":
            return shown
    raise AssertionError(shown)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def until_open(port: int) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < ends_s, "nobody listens"


def test_the_readme_names_no_target_and_no_page_that_is_not_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = re.findall(r"^\| `([\w/.<>]+)` \|", README, re.MULTILINE)

    assert set(re.findall(r"\bmake ([a-z]+)", README)) <= targets
    assert len(pages) >= 5
    assert [page for page in pages if "<" not in page and not (ROOT / page).is_file()] == []
