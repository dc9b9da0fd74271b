"""What else may be compared while a log is folded: whoever may know of it brings it along."""

from typing import Protocol

from contracts.audit.findings import Projection
from contracts.audit.log_audit import LogAudit
from contracts.audit.mending import Mender
from contracts.store.log import Poison
from contracts.wire import Entry


class Beside(Protocol):
    """Given each entry of a whole log in order; asked at the end."""

    async def begin(self, *, is_whole: bool) -> None:
        """Read what will be compared, before the log is read; `is_whole`: from its beginning. Raises Unavailable."""

    def take(self, entry: Entry | Poison) -> None:
        """Fold one entry."""

    async def compare(self) -> Projection:
        """Return what came of it. Raises Unavailable."""

    async def mend(self, mender: Mender, audit: LogAudit) -> None:
        """Make what differs anew, as far as it can be; `compare` is asked again afterwards. Raises Unavailable."""
