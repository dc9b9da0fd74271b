"""A log with an empty archive."""

from pathlib import Path

import pytest

from contracts.store import Store
from tests.archive.rig import Log


@pytest.fixture
def log(store: Store, tmp_path: Path) -> Log:
    """The log of pool `default`."""
    return Log(store, tmp_path / "archive")
