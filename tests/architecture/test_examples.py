"""The examples in docstrings are promises, too: what they show is what comes out."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_FILES = [path for package in ("contracts", "services", "headrace") for path in (ROOT / package).rglob("*.py")]
SHOWING = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in _FILES if "    >>> " in path.read_text()
)


@pytest.mark.parametrize("module", SHOWING)
def test_the_examples_of_a_module_show_what_comes_out(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module.removesuffix(".__init__")))

    assert result.attempted > 0
    assert result.failed == 0
