"""What a service brings along when it starts: each restart of a process pays for it."""

import json
import subprocess
import sys

import pytest

NOT_AT_THE_START = {"rich", "aiohttp", "obstore", "numpy"}
SHOW = "import importlib, json, sys; importlib.import_module(sys.argv[1]); print(json.dumps([*sys.modules]))"


@pytest.mark.parametrize(("service", "needed"), [("gpu_worker", set()), ("scheduler", set()), ("ingest", {"aiohttp"})])
def test_a_service_starts_without_what_few_runs_need(service: str, needed: set[str]) -> None:
    command = [sys.executable, "-c", SHOW, f"services.{service}.__main__"]
    brought = set(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))

    assert brought & NOT_AT_THE_START == needed
