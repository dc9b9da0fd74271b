"""What other processes of the same user see of a process that hides."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65_534
PROCESS = f"""
import ctypes, os, sys
sys.path.insert(0, {str(ROOT)!r})
from contracts.secrecy import hide_this_process
if os.geteuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # changing the user hides, too; a process that was started so is open
if sys.argv[1] == "hides":
    assert hide_this_process()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
@pytest.mark.parametrize(("how", "status"), [("open", 0), ("hides", 1)])
def test_a_process_that_hides_shows_its_environment_to_root_only(how: str, status: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, how], env={"HEADRACE_REDIS__URL": "a secret"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        user = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
        seen = subprocess.run(["cat", f"/proc/{process.pid}/environ"], capture_output=True, check=False, **user)
        process.stdin.close()
    assert (seen.returncode, b"a secret" in seen.stdout) == (status, status == 0)


@pytest.mark.parametrize(
    "program", [*(f"services/{name}/__main__.py" for name in ("gpu_worker", "ingest", "notifier", "scheduler")),
                "headrace/cli.py"],
)  # fmt: skip
def test_every_program_that_is_given_secrets_hides_first(program: str) -> None:
    body = (ROOT / program).read_text().partition("def main(")[2]
    assert "    hide_this_process()\n" in body
    assert "settings" not in body.partition("hide_this_process()")[0].replace("Read the settings", "")
