"""Fixtures of the store tests: every test here runs on each supported server."""

from collections.abc import AsyncIterator

import pytest

from contracts.store import Store
from tests.servers import Server
from tests.store.play import POOL, Play


@pytest.fixture
async def play(any_server: Server) -> AsyncIterator[Play]:
    """A pool with a leader and one worker."""
    store = Store(any_server.url)
    await store.directory.open()
    await store.open_pool(POOL)
    yield await Play(store).open()
    await store.aclose()
