"""A pool with an empty archive, and one that has lived."""

from pathlib import Path

import pytest

from contracts.store import Store
from tests.archivist.rig import Pool
from tests.audit.rig import Lived


@pytest.fixture
def pool(store: Store, tmp_path: Path) -> Pool:
    """Pool `default`."""
    return Pool(store, tmp_path / "archive")


@pytest.fixture
async def lived(pool: Pool) -> Lived:
    """Jobs that wait, ended ones, forgotten ones, deliveries; a part of the log is sealed and signed."""
    return await Lived.live(pool)
