"""Waiting that an event ends early."""

import asyncio
from contextlib import suppress


async def wait(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, `seconds` at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
