"""What an agent is given: a read batch of a log, however it came here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contracts.store.log import Poison
from contracts.wire import Entry


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Entries in the order of the log.

    Attributes:
        in_group: whether they are pending in the log's group, to be acknowledged in the call that stores.
        settle: called once when the agent is through with it: True when it was handled, False when it was not.
    """

    entries: Sequence[Entry | Poison]
    in_group: bool
    settle: Callable[[bool], None]
