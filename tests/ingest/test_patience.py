"""Waits of bounded length: what has arrived is never thrown away, however late the process looks."""

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
import uvloop

from services.ingest.patience import Patience

LIMIT_S = 0.05


async def relayed(call: "asyncio.Task[bytes]", hops: int) -> bytes:
    """Await through some tasks, as a reply of the store is handed on."""
    return await call if hops == 0 else await asyncio.create_task(relayed(call, hops - 1))


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_reply_that_came_while_the_process_was_held_up_is_not_too_late(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Otherwise a job that was made is answered 503 whenever a machine is paused or starved for two seconds."""

    async def story() -> bytes:
        here, there = socket.socketpair()
        with here, there:
            here.setblocking(False)
            call = asyncio.create_task(asyncio.get_running_loop().sock_recv(here, 16))
            waiting = asyncio.create_task(Patience(LIMIT_S).within(relayed(call, 2)))
            await asyncio.sleep(0)
            there.send(b"done")
            time.sleep(4 * LIMIT_S)  # noqa: ASYNC251 - nothing runs in this process meanwhile: that is what the test is about
            return await waiting

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(story()) == b"done"


async def test_a_wait_for_nothing_is_cut_and_so_are_those_behind_it() -> None:
    patience = Patience(LIMIT_S)
    nothing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait() -> None:
        await patience.within(asyncio.shield(nothing))

    ends = await asyncio.gather(*(wait() for _ in range(3)), return_exceptions=True)

    assert [type(end) for end in ends] == [TimeoutError] * 3
    assert await patience.within(asyncio.sleep(0, "fine")) == "fine"


async def test_a_task_that_is_cancelled_by_somebody_else_stays_cancelled() -> None:
    waiting = asyncio.create_task(Patience(60).within(asyncio.Event().wait()))
    await asyncio.sleep(0)

    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
