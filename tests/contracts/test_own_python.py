"""Processes that ours start import from where ours do."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.headrace.warm import ROOT

_TELL = "import sys; sys.path.append(sys.argv[1])\nfrom contracts.own_python import own_python\nprint(own_python('m'))"


@pytest.mark.parametrize("flags", [["-P"], []])
def test_a_child_imports_from_the_current_folder_only_where_we_do(flags: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *flags, "-c", _TELL, str(ROOT)], capture_output=True, text=True, cwd=tmp_path, check=True
    )

    assert done.stdout.strip() == repr([sys.executable, *flags, "-m", "m"])
