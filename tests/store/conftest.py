"""Fixtures of the store tests: every test here runs on each supported server."""

from collections.abc import AsyncIterator

import pytest

from contracts.store import Store
from tests.servers import Server
from tests.store.play import POOL, Play


@pytest.fixture
async def store(any_server: Server) -> AsyncIterator[Store]:
    """An open pool."""
    opened = Store(any_server.url)
    await opened.directory.open()
    await opened.open_pool(POOL)
    yield opened
    await opened.aclose()


@pytest.fixture
async def play(store: Store) -> Play:
    """A pool with a leader and one worker."""
    return await Play(store).open()
