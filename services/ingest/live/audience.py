"""For whom a stream over whole pools is: which pools, which events of them, and how things are at its start."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from contracts.wire import Entry
from services.ingest.live.tenant_feed import TenantListener
from services.ingest.live.viewer import Viewed, Viewer
from services.ingest.views.body_lines import JsonObject


class Audience(Protocol):
    """What a stream asks of those for whom it is."""

    @property
    def pools(self) -> Sequence[str]:
        """The pools that are followed."""

    def follow(self, pool: str, listener: TenantListener) -> AbstractContextManager[None]:
        """Have a listener told of what happens in a pool."""

    async def view(self, viewer: Viewer, entries: Sequence[Entry]) -> list[Viewed]:
        """Return what is made of entries that were missed. Raises Unavailable."""

    def is_wanted(self, viewed: Viewed) -> bool:
        """Whether an event is for them."""

    async def snapshot(self) -> JsonObject:
        """Say how things are now. Raises Unavailable."""
