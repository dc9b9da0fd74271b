"""An HTTP server that answers as a test says, with a client of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from headrace.client import Client


@asynccontextmanager
async def scripted(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[Client]:
    """Serve every path by `answer` until the block ends."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with Client(f"http://127.0.0.1:{runner.addresses[0][1]}", "sk_test") as client:
            yield client
    finally:
        await runner.cleanup()
