"""Ends what the tests of the command line share."""

from collections.abc import Iterator

import pytest

from tests.headrace.warm import warm


@pytest.fixture(scope="session", autouse=True)
def _warm() -> Iterator[None]:
    yield
    warm.stop()
