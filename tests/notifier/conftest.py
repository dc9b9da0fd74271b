"""What the tests of the notifier begin with."""

import pytest

from contracts.store import Store
from tests.notifier.hooked import make_tenant


@pytest.fixture
async def store(store: Store) -> Store:
    """The open store, with a tenant that has a secret."""
    await make_tenant(store)
    return store
