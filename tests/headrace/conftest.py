"""What the tests of the command line share: one stack, and one process that runs commands."""

from collections.abc import Iterator

import pytest

from tests.headrace.up_process import Up, start_up
from tests.headrace.warm import warm


@pytest.fixture(scope="session", autouse=True)
def _warm() -> Iterator[None]:
    yield
    warm.stop()


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = start_up(tmp_path_factory.mktemp("up") / ".headrace")
    yield running
    running.clean_up()
