"""The checks of `check.py` where there is a card; elsewhere skipped with the reason."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.gpu_worker.gpus.finding import Gpus
from tests.gpu.check import LIMIT_S, why_not


@pytest.mark.timeout(LIMIT_S + 60)
def test_a_card_keeps_what_is_promised_of_it() -> None:
    reason = why_not(Gpus(os.environ))
    if reason:
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.gpu.check"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
