"""What tests of the mirror begin with."""

from collections.abc import Iterator

import pytest

from contracts.store import Store
from tests.notifier.hooked import make_tenant
from tests.notifier.kafka import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One for a file: a mirror joins no group."""
    running = Broker()
    yield running
    running.stop()


@pytest.fixture
async def store(store: Store) -> Store:
    """The open store, with a tenant."""
    await make_tenant(store)
    return store
