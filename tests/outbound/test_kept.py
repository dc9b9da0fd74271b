"""Sessions that are kept for a receiver: shared with nobody else, closed when idle, never while in use."""

import asyncio

import aiohttp

from contracts.outbound.kept import KeptSessions


async def test_one_receiver_has_one_session_and_two_have_two() -> None:
    kept = KeptSessions(aiohttp.ClientSession, 60)
    async with kept.of("a") as first, kept.of("a") as again, kept.of("b") as other:
        assert first is again
        assert first is not other
    await kept.aclose()
    assert first.closed
    assert other.closed


async def test_what_is_idle_goes_at_the_next_use_of_any_and_what_is_in_use_stays() -> None:
    kept = KeptSessions(aiohttp.ClientSession, 0)
    async with kept.of("busy") as busy:
        idle = []
        for number in range(5):
            async with kept.of(f"idle{number}") as session:
                idle.append(session)
            await asyncio.sleep(0)  # the loop's clock moves on
        assert not busy.closed
    assert sum(not session.closed for session in idle) <= 2
    await kept.aclose()
