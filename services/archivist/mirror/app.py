"""The mirror's agents and sources, put together. Imported late, and in a thread: Faust takes half a second."""

from collections.abc import Mapping, Sequence

from mode import Service

from contracts.agents import assembling
from contracts.agents.assembling import HandOver
from contracts.agents.frontier import AgentApp
from contracts.archive import Archive
from contracts.kafka.connection import Topic
from contracts.kafka.writer import TopicWriter
from contracts.store import Store
from contracts.store.store import PoolMeta
from contracts.telemetry import Logger
from services.archivist.mirror.copying import Copier
from services.archivist.mirror.source import BLOCK_MS, LEASE_MS, MirrorSource


def assemble(
    store: Store, archive: Archive, pools: Mapping[str, PoolMeta], topic: Topic, public_url: str, log: Logger,
    *, idempotent: bool, block_ms: int = BLOCK_MS, lease_ms: int = LEASE_MS,
) -> tuple[AgentApp, list[MirrorSource]]:  # fmt: skip
    """Return the app, and the source of each pool. A writer for each pool: one that waits holds up no other."""
    copiers = {
        pool: Copier(store, archive, meta, public_url, TopicWriter(topic, idempotent=idempotent), log)
        for pool, meta in pools.items()
    }
    sources: list[MirrorSource] = []

    def feed(channels: Mapping[str, HandOver]) -> Sequence[Service]:
        for pool, hand_over in channels.items():
            source = MirrorSource(
                store, pool, copiers[pool], hand_over, log, block_ms=block_ms, lease_ms=lease_ms
            )  # fmt: skip
            sources.append(source)
        return sources

    bodies = {pool: copier.run for pool, copier in copiers.items()}
    return assembling.assemble("headrace-mirror", "copy", bodies, feed), sources
