"""A bounded memory of what was used last. Pure."""

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Up to `most` values by key; what was not asked for longest goes first.

    >>> recent = Recent(2)
    >>> for key in "aba":
    ...     recent.put(key, key.upper())
    >>> recent.put("c", "C"), recent.get("b"), recent.get("a")
    (None, None, 'A')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[K, V] = OrderedDict()

    def put(self, key: K, value: V) -> None:
        """Keep a value, also in the place of an older one."""
        self._kept[key] = value
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def get(self, key: K) -> V | None:
        """Return what is kept, if anything is."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)
