"""Each command imports what it needs and no more, and all are found."""

import json
import subprocess
import sys

import pytest
import typer.main
from typer.testing import CliRunner

from headrace import cli, policy
from headrace.webhooks import group as webhooks

HEAVY = [
    "services.scheduler",
    "services.gpu_worker",
    "services.ingest",
    "redis",
    "headrace.simulate",
    "standardwebhooks",
]
SHOW = f"""
import json, sys
from headrace.cli import app
try:
    app(sys.argv[1:])
except SystemExit:
    print(json.dumps([name for name in {HEAVY} if name in sys.modules]), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "imported"),
    [
        (["jobs", "get", "--help"], []),
        (["version"], []),
        (["policy", "simulate", "--help"], ["services.scheduler", "redis", "headrace.simulate"]),
        (["webhook", "endpoints", "list", "--help"], []),
        (["webhook", "listen", "--help"], ["standardwebhooks"]),
    ],
)
def test_a_command_brings_along_only_what_it_needs(words: list[str], imported: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", SHOW, *words], capture_output=True, text=True, check=True)

    brought = json.loads(done.stderr.splitlines()[-1])
    assert set(imported) <= set(brought) if imported else brought == []


def test_every_command_is_where_it_is_said_to_be() -> None:
    group = typer.main.get_command(cli.app)
    found = {name: group.get_command(None, name) for name in cli.COMMANDS}  # type: ignore[attr-defined]

    assert {name: command.name for name, command in found.items()} == {name: name for name in cli.COMMANDS}
    assert all(found["policy"].get_command(None, name) for name in [*policy.COMMANDS, "get", "set"])
    assert all(found["webhook"].get_command(None, name) for name in webhooks.COMMANDS)


def test_a_misspelt_command_hears_of_those_that_were_not_imported() -> None:
    said = CliRunner().invoke(cli.app, ["jos"])

    assert said.exit_code == 2
    assert "Did you mean 'jobs'?" in said.output
