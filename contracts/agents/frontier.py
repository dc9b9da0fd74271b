"""Where our types end and Faust begins: an app without Kafka, a channel of batches, a stream that settles afterwards.

Faust's own stream acknowledges in a `finally`, also after an exception and after a cancel, and its Cython iterator
never calls `Event.ack`; so the stream here has an iterator of its own, the same with Cython and without. It touches
names of Faust that are private (`_active_agens`, `_finalized`): the version is pinned, and tests hold it.
Promises: a batch is settled with True only when the body asked for the next one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

import faust
from faust.app.base import BootStrategy
from faust.channels import Channel
from faust.events import Event
from faust.streams import Stream
from faust.types import TP
from faust.types.tuples import Message
from mode import Service
from mode.utils.queues import FlowControlEvent, ThrowableQueue

from contracts.agents.batch import Batch

Body = Callable[[AsyncIterator[Batch]], Awaitable[None]]
_NOWHERE = Message("batches", 0, 0, 0.0, 0, None, None, None, None, tp=TP("batches", 0))


class BatchChannel(Channel[Batch]):
    """What an agent iterates: batches that a source hands over; all clones share one queue."""

    def __init__(self, app: Any, **options: Any) -> None:
        if options.get("queue") is None:
            options["queue"] = ThrowableQueue(flow_control=FlowControlEvent(initially_suspended=False))
        super().__init__(app, **options)

    def hand_over(self, batch: Batch) -> None:
        """Give the agent a batch."""
        self.queue.put_nowait(Event(self.app, None, batch, None, _NOWHERE))

    def _clone_args(self) -> Mapping[str, Any]:
        return {**super()._clone_args(), "queue": self.queue}


class DurableStream(Stream[Batch]):
    """Settles a batch after the body: as handled if the body went on to the next one, as not handled otherwise."""

    def __aiter__(self) -> AsyncIterator[Batch]:
        iterator = self._settling()
        self._active_agens.add(cast(Any, iterator))
        return iterator

    async def _settling(self) -> AsyncIterator[Batch]:
        self._finalized = True
        started_here = await self.maybe_start()
        try:
            while not self.should_stop:
                event = await self._next_event()
                is_handled = False
                try:
                    self._set_current_event(event)
                    yield cast(Batch, event.value)
                    is_handled = True
                finally:
                    self.current_event = None
                    cast(Batch, event.value).settle(is_handled)
        except StopAsyncIteration:  # thrown into the channel when the agent is stopped
            return
        finally:
            if started_here:
                await self.stop()
                self.service_reset()

    async def _next_event(self) -> Event:
        return cast(Event, await cast(BatchChannel, self.channel).__anext__())


class _AgentsOnly(BootStrategy):
    enable_kafka = False
    enable_sensors = False


class AgentApp(faust.App):
    """A Faust app that talks to no broker, writes to no directory and is run by whoever awaits `start` and `stop`."""

    BootStrategy = _AgentsOnly

    def __init__(self, name: str) -> None:
        self._beside: list[Service] = []
        super().__init__(
            name,
            broker="kafka://none",
            Stream=cast(Any, DurableStream),
            web_enabled=False,
            autodiscover=False,
        )

    def add_agent(self, name: str, channel: BatchChannel, body: Body) -> None:
        """Let an agent iterate a channel."""
        self.agent(cast(Any, channel), name=name)(cast(Any, body))

    def run_beside(self, *services: Service) -> None:
        """Let services start and stop with the app."""
        self._beside += services

    def on_init_dependencies(self) -> Iterable[Any]:
        """Start the agents first, then what feeds them; they stop the other way round."""
        return [self.agents, *self._beside]

    async def on_first_start(self) -> None:
        """Make no directories: there are no tables."""

    async def on_start(self) -> None:
        """Make no consumer."""
        self.finalize()

    async def on_started(self) -> None:
        """Let events flow: only Kafka's recovery would."""
        self.flow_control.resume()
