"""Stacks for the stories: one that a test process shares while it stays healthy, and stacks of a test's own."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.harness import Proxy, Stack
from tests.servers import Server

SHARED: dict[str, Any] = {"workers": 2, "devices": "cpu"}

Starter = Callable[..., Awaitable[Stack]]


@pytest.fixture(scope="session")
def _shared() -> Iterator[list[Stack]]:
    running: list[Stack] = []
    yield running
    for stack in running:
        status = stack.stop()
        assert (status, stack.discard()) == (0, [])


@pytest.fixture
async def stack(_shared: list[Stack], request: pytest.FixtureRequest) -> AsyncIterator[Stack]:
    """Two workers with one CPU slot each and a tenant of the test's own. A test that fails takes the stack with it."""
    if not _shared:
        _shared.append(Stack(**SHARED))
        await asyncio.to_thread(_shared[0].start)
    watched = _shared[0]
    async with watched.watched(own_tenant=True):
        yield watched
    if request.node.stash.get(FAILED, False):
        broken = _shared.pop()
        request.node.add_report_section("teardown", "stack", broken.output())
        with contextlib.suppress(AssertionError):
            broken.stop(signal.SIGKILL)
        broken.discard()


@pytest.fixture
async def start_stack(request: pytest.FixtureRequest) -> AsyncIterator[Starter]:
    """Start stacks of the test's own; afterwards each must stop cleanly and leave no process behind."""
    stacks: list[Stack] = []
    async with contextlib.AsyncExitStack() as watching:

        async def start(**options: Any) -> Stack:
            stacks.append(Stack(**options))
            await asyncio.to_thread(stacks[-1].start)
            await watching.enter_async_context(stacks[-1].watched())
            return stacks[-1]

        yield start
    failed = request.node.stash.get(FAILED, False)
    for stack in stacks:
        try:
            status = await asyncio.to_thread(stack.stop)
        finally:
            output, left = stack.output(), stack.discard()
        if failed:
            request.node.add_report_section("teardown", "stack", output)
        assert failed or (status, left) == (0, []), output


@pytest.fixture
async def proxy(own_server: Server) -> AsyncIterator[Proxy]:
    """The way to `own_server` on which replies can be held, lost and swallowed."""
    opened = Proxy(own_server.socket)
    await opened.open()
    yield opened
    await opened.close()


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Tell the fixtures whether the test failed."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report
