"""Stacks for the stories. Starting one takes seconds, so the tests of a process share two while they stay whole.

All stories of a process run in one event loop, in which the proxy of the shared `fragile` stack runs, too.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.harness import Fragile, Stack

collect_ignore_glob = [] if Path("/proc/self").exists() else ["test_*.py"]  # processes are found through /proc
FAILED = pytest.StashKey[bool]()

Starter = Callable[..., Awaitable[Stack]]
session_fixture = pytest_asyncio.fixture(scope="session", loop_scope="session")
story_fixture = pytest_asyncio.fixture(loop_scope="session")


class Shared:
    """The stack of a kind that the tests of this process share; one that a test broke is replaced."""

    def __init__(self, make: Callable[[], Awaitable[Any]]) -> None:
        self._make = make
        self.stack: Any = None

    async def take(self) -> Any:
        """Return a stack that is ready and quiet."""
        if self.stack is None:
            self.stack = await self._make()
        return self.stack

    async def drop(self, number: int = signal.SIGTERM) -> tuple[int, list[Any]]:
        """End it; the next test gets another one."""
        stack, self.stack = self.stack, None
        if isinstance(stack, Fragile):
            return await stack.remove(number)
        try:
            status = await asyncio.to_thread(stack.stop, number)
        finally:
            left = stack.discard()
        return status, left


async def _plain() -> Stack:
    stack = Stack(workers=2, devices="cpu")
    await asyncio.to_thread(stack.start)
    return stack


@session_fixture
async def _shared() -> AsyncIterator[dict[str, Shared]]:
    kinds = {"plain": Shared(_plain), "fragile": Shared(Fragile.make)}
    yield kinds
    for shared in kinds.values():
        if shared.stack is not None:
            assert await shared.drop() == (0, [])


async def _lend(shared: Shared, workers: int, node: pytest.Item) -> AsyncIterator[Any]:
    stack, is_whole = await shared.take(), False
    try:
        async with stack.watched():
            await stack.wait_until_quiet(workers)  # the last test may have stopped ingest
            stack.key = await stack.make_tenant()
            yield stack
            is_whole = not node.stash.get(FAILED, True)
    finally:
        if not is_whole:
            node.add_report_section("teardown", "stack", stack.output())
            with contextlib.suppress(AssertionError):
                await shared.drop(signal.SIGKILL)


@story_fixture
async def stack(_shared: dict[str, Shared], request: pytest.FixtureRequest) -> AsyncIterator[Stack]:
    """Two workers with one CPU slot each, a lease of 3 s, the embedded store, a tenant of the test's own."""
    async for lent in _lend(_shared["plain"], 2, request.node):
        yield lent


@story_fixture
async def fragile(_shared: dict[str, Shared], request: pytest.FixtureRequest) -> AsyncIterator[Fragile]:
    """One worker with one CPU slot, leases of 1 s, and a store to stop, freeze and fill, behind a proxy."""
    async for lent in _lend(_shared["fragile"], 1, request.node):
        yield lent


@story_fixture
async def start_stack(request: pytest.FixtureRequest) -> AsyncIterator[Starter]:
    """Start stacks of the test's own; afterwards each must stop cleanly and leave no process behind.

    Name it last in a test's arguments: a store of the test's own must outlive the stack.
    """
    stacks: list[Stack] = []
    async with contextlib.AsyncExitStack() as watching:

        async def start(**options: Any) -> Stack:
            stacks.append(Stack(**options))
            await asyncio.to_thread(stacks[-1].start)
            await watching.enter_async_context(stacks[-1].watched())
            return stacks[-1]

        yield start
    failed = request.node.stash.get(FAILED, True)
    for stack in stacks:
        try:
            status = await asyncio.to_thread(stack.stop)
        finally:
            output, left = stack.output(), stack.discard()
        if failed:
            request.node.add_report_section("teardown", "stack", output)
        assert failed or (status, left) == (0, []), output


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Tell the fixtures whether the test failed."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report
