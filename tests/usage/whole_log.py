"""What a whole log tells of usage, folded in one go: what the counted rows are held against."""

from collections.abc import Iterable

from contracts.usage.fold import Owner, UsageFold, learn
from contracts.wire import Entry


def fold_all(entries: Iterable[Entry]) -> UsageFold:
    """Fold a whole log by itself: owners are those that it tells of."""
    fold, owners = UsageFold(), dict[str, Owner]()
    for entry in entries:
        fold.apply(entry, owners.get(entry.subject))
        learn(owners, entry)
    return fold
