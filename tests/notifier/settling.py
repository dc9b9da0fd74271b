"""Run as a process of its own, because Faust reads NO_CYTHON when it is imported: when is a batch settled?"""

import asyncio
import json
import logging

import faust.streams

from contracts.agents.batch import Batch
from contracts.agents.frontier import AgentApp, BatchChannel

seen: list[str] = [f"cython {faust.streams._CStreamIterator is not None}"]


class Agent:
    """An agent whose body goes on when it is told to."""

    def __init__(self, *names: str) -> None:
        self.began: asyncio.Queue[str] = asyncio.Queue()
        self.going_on = asyncio.Event()
        self.app = AgentApp("settling")
        channel = BatchChannel(self.app)
        self.app.add_agent("plan", channel, self._body)
        for name in names:
            channel.hand_over(Batch([name], True, lambda is_handled, name=name: seen.append(f"{name} {is_handled}")))

    async def go_on(self) -> None:
        seen.append(f"{await self.began.get()} runs")
        self.going_on.set()

    async def _body(self, batches) -> None:
        async for batch in batches:
            self.began.put_nowait(batch.entries[0])
            await self.going_on.wait()
            self.going_on.clear()
            if batch.entries == ["bad"]:
                raise ValueError
            seen.append(f"{batch.entries[0]} ended")


async def main() -> None:
    """Print what was seen, in order."""
    agent = Agent("first", "cut off", "never begun")
    await agent.app.start()
    await agent.go_on()
    await agent.began.get()
    await agent.app.stop()
    agent = Agent("bad", "after", "later")
    await agent.app.start()
    await agent.go_on()
    await agent.go_on()
    await agent.go_on()
    await asyncio.sleep(0.05)
    await agent.app.stop()
    print(json.dumps(seen))


logging.disable(logging.CRITICAL)
asyncio.run(main())
