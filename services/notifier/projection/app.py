"""The notifier as a Faust app: an agent for each pool, and beside the agents what feeds them and what sends.

Imported late, and in a thread: Faust takes half a second.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mode import Service

from contracts.agents import assembling
from contracts.agents.assembling import Feed, HandOver
from contracts.agents.beside import Running
from contracts.agents.frontier import AgentApp
from contracts.kafka.connection import Topic
from contracts.store import Store, keys
from contracts.telemetry import Logger
from services.notifier.planner import Planner
from services.notifier.projection.kafka_source import KafkaSource
from services.notifier.projection.source import GroupSource

__all__ = ["Running", "assemble", "from_groups", "from_kafka", "with_configuration"]


def assemble(planners: Mapping[str, Planner], feed: Feed, beside: Sequence[Running]) -> AgentApp:
    """Put the app together; it runs between `start` and `stop`, and `crashed` says that it cannot go on."""
    bodies = {pool: planner.run for pool, planner in planners.items()}
    return assembling.assemble("headrace-notifier", "plan", bodies, feed, beside)


def from_groups(
    store: Store, consumer: str, log: Logger, block_ms: int, forked: Callable[[], None] = lambda: None
) -> Feed:  # fmt: skip
    """Return a feed that reads each pool's log as a member of its group."""

    def feed(channels: Mapping[str, HandOver]) -> Sequence[Service]:
        source = partial(GroupSource, store, consumer=consumer, log=log, forked=forked, block_ms=block_ms)
        return [source(pool, hand_over=hand_over) for pool, hand_over in channels.items()]

    return feed


def from_kafka(store: Store, topic: Topic, log: Logger, block_ms: int) -> Feed:
    """Return a feed that reads the records of all pools from one topic."""

    def feed(channels: Mapping[str, HandOver]) -> Sequence[Service]:
        return [KafkaSource(store, topic, channels, log, block_ms=block_ms)]

    return feed


def with_configuration(feed: Feed, groups: Feed) -> Feed:
    """Return a feed that reads the log of the configuration as a member of its group, wherever those of pools lie."""

    def both(channels: Mapping[str, HandOver]) -> Sequence[Service]:
        of_pools = {name: hand_over for name, hand_over in channels.items() if name != keys.SYSTEM}
        return [*feed(of_pools), *groups({keys.SYSTEM: channels[keys.SYSTEM]})]

    return both
