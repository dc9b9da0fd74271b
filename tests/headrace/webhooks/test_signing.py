"""`headrace webhook sign` and `verify`: what one signs the other believes, and nothing else."""

import base64
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from contracts.webhook_keys import WebhookKey
from headrace import cli
from headrace.command import read_input
from tests.headrace.up_process import plain_environment
from tests.headrace.warm import Done, warm

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
BODY = b'{"type":"job.completed","jobId":"job_\xc3\xa9"}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "body").write_bytes(BODY)
    (tmp_path / "headers").write_text(run(tmp_path, "sign", "body", "--id", "evt_1").out)
    return tmp_path


def run(folder: Path, *words: str, **settings: str) -> Done:
    environ = {"HEADRACE_CLIENT__WEBHOOK_SECRET_FILE": str(folder / "secret")} | settings
    return warm.run(("webhook", *words), folder, plain_environment(**environ))


def test_what_was_signed_is_verified_in_every_form(folder: Path) -> None:
    signed = run(folder, "sign", "body", "--id", "evt_1", "-o", "json")
    (folder / "headers.json").write_text(signed.out)
    parts = [word for name, value in signed.json.items() for word in (f"--{name.removeprefix('webhook-')}", value)]

    for words in (["--headers", "headers"], ["--headers", "headers.json"], parts):
        done = run(folder, "verify", "body", *words)
        assert (done.exit_code, done.out, done.err) == (0, "valid\n", "")
    assert run(folder, "verify", "body", "--headers", "headers", "-o", "json").json == {"valid": True, "fault": None}


def test_what_was_changed_or_is_old_is_exit_code_1_and_says_why(folder: Path) -> None:
    (folder / "other").write_text("whsec_" + base64.b64encode(b"o" * 32).decode())
    (folder / "changed").write_bytes(BODY + b"\n")
    old = ("verify", "body", "--headers", "old")
    (folder / "old").write_text(run(folder, "sign", "body", "--timestamp", "1764457200").out)

    for words in (
        ("verify", "changed", "--headers", "headers"),
        ("verify", "body", "--headers", "headers", "--id", "evt_2"),
        ("verify", "body", "--headers", "headers", "--secret-file", "other"),
    ):
        done = run(folder, *words)
        assert (done.exit_code, done.out) == (1, "")
        assert "No matching signature found" in done.err
    assert (run(folder, *old).exit_code, run(folder, *old, "--any-time").exit_code) == (1, 0)
    assert "too old" in run(folder, *old, "-o", "json").json["fault"]


def test_a_public_key_is_enough(folder: Path) -> None:
    key = WebhookKey(b"root")
    (folder / "public").write_text(
        f"< Webhook-Id: evt_1\r\n< webhook-timestamp: 1764457200\r\n"
        f"< webhook-signature: {key.sign(b'evt_1.1764457200.' + BODY)}\r\n"
    )
    words = ("verify", "body", "--headers", "public", "--any-time", "--public-key")

    assert run(folder, *words, key.text()).exit_code == 0
    assert run(folder, *words, WebhookKey(b"other").text()).exit_code == 1


def test_standard_input_is_a_body_like_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["webhook", "verify", "-", "--headers", str(folder / "headers"), "--secret-file", str(folder / "secret")]

    assert CliRunner().invoke(cli.app, words, input=BODY).exit_code == 0
    monkeypatch.setattr(sys, "stdin", None)  # as `<&-` leaves it
    with pytest.raises(typer.BadParameter, match="there is no standard input"):
        read_input(Path("-"), "FILE")


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        (("sign", "nowhere"), 2),
        (("sign", "body", "--id", "evt.1"), 2),
        (("sign", "body", "--id", ""), 2),
        (("sign", "body", "--timestamp", "-1"), 2),
        (("sign", "body", "--secret-file", "nowhere"), 4),
        (("sign", "body", "--secret-file", "body"), 4),
        (("sign", "body", "--secret-file", "short"), 4),
        (("sign", "."), 2),
        (("verify", "body"), 2),
        (("verify", "body", "--headers", "nowhere"), 2),
        (("verify", "body", "--headers", "{}"), 2),
        (("verify", "body", "--headers", "body"), 1),
        (("verify", "body", "--headers", "headers", "--timestamp", "soon"), 1),
        (("verify", "body", "--headers", "headers", "--public-key", "whpk_"), 2),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(folder: Path, words: tuple[str, ...], exit_code: int) -> None:
    (folder / "short").write_text("whsec_AAAA")

    done = run(folder, *words)

    assert done.exit_code == exit_code, done.err
    assert (done.out, "Traceback" in done.err) == ("", False)
    assert SECRET not in done.err


def test_without_a_secret_it_says_where_one_can_be_put(folder: Path) -> None:
    done = run(folder, "sign", "body", HEADRACE_CLIENT__WEBHOOK_SECRET_FILE="")

    assert (done.exit_code, "--secret-file" in done.err) == (4, True)
