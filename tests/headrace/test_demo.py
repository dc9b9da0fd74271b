"""`headrace demo`, as a newcomer runs it."""

import re
import struct
import subprocess
import sys
import time
from pathlib import Path

from tests.harness.processes import processes_of
from tests.headrace.up_process import plain_environment

PROMPT = "a red lighthouse by the sea at sunset"


def test_the_demo_makes_a_picture_receives_a_signed_webhook_and_leaves_nothing_running(tmp_path: Path) -> None:
    environ = plain_environment(PYTHONPATH=str(Path(__file__).parents[2]), TMPDIR=str(tmp_path))
    began = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-m", "headrace", "demo", PROMPT],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environ,
        timeout=110,
        check=False,
    )

    assert done.returncode == 0, done.stderr + done.stdout
    order = [
        r"^job job_[0-9a-z]{28}$",
        r"^\[#+-*\] +\d+ % \w+$",
        r"^preview \S+ step \d+/\d+$",
        r"^webhook job.completed signature valid$",
        r"^picture \./headrace-demo\.png$",
        r"^ *0 +1 +job\.created ",
        r"^ *\d+ +\d+ +job\.completed ",
    ]
    places = [match.start() for pattern in order if (match := re.search(pattern, done.stdout, re.MULTILINE))]
    assert len(places) == len(order), done.stdout
    assert places == sorted(places), done.stdout
    picture = (tmp_path / "headrace-demo.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) == (512, 512)
    assert len(list(tmp_path.glob("headrace-demo-preview.*"))) == 1
    assert processes_of(tmp_path) == []
    assert list(tmp_path.glob("headrace-demo-*/")) == []
    assert time.monotonic() - began < 60
