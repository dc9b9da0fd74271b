"""Fixtures of the worker's tests."""

import pytest

from tests.gpu_worker.memory_pressure import Crowd, crowd


@pytest.fixture
def crowded(monkeypatch: pytest.MonkeyPatch) -> Crowd:
    """Call it to leave a device only so many MiB, or None for all it has."""
    return crowd(monkeypatch)
