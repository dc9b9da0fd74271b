"""A pool with an empty archive."""

from pathlib import Path

import pytest

from contracts.store import Store
from tests.archivist.rig import Pool


@pytest.fixture
def pool(store: Store, tmp_path: Path) -> Pool:
    """Pool `default`."""
    return Pool(store, tmp_path / "archive")
