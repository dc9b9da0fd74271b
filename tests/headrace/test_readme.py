"""The README is tried as a newcomer tries it: its pipeline is written to disk as it stands there, and run."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.main import get_command

from headrace import cli
from tests.headrace.up_process import PATIENCE_S, plain_environment, start_up

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
    lines = [shlex.split(line, comments=True) for line in blocks("", "Talk to it")[1].splitlines()]

    assert len(lines) >= 8
    for words in lines:
        command: Any = get_command(cli.app)
        for word in words[1:]:
            command = command.get_command(None, word) if hasattr(command, "get_command") else command
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, words


def test_the_readme_names_no_target_and_no_page_that_is_not_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = re.findall(r"^\| `([\w/.<>]+)` \|", README, re.MULTILINE)

    assert set(re.findall(r"\bmake ([a-z]+)", README)) <= targets
    assert len(pages) >= 5
    assert [page for page in pages if "<" not in page and not (ROOT / page).is_file()] == []
