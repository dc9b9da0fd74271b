"""Digests of single entries: the chain walked once through a segment, however many of its entries are asked for.

Promises: the digest of an entry is the one that its sealing computed, so that whoever has the entries between two
checkpoints can compute it, too. Raises Corrupt, Unavailable.
"""

from collections.abc import Iterable

from contracts.archive.backward import segment_of
from contracts.archive.chain import link
from contracts.archive.lines import Lines
from contracts.archive.names import SegmentName
from contracts.archive.reading import Archive
from contracts.recent import Recent

MOST_KEPT = 2  # segments, some 2 MB each
Walked = dict[str, bytes]  # position to digest, in the order of the chain


class Hashes:
    """The digests of what is sealed; one for each process."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._walked: Recent[str, Walked] = Recent(MOST_KEPT)

    async def of(self, pool: str, positions: Iterable[str]) -> dict[str, str]:
        """Return the chain's digest after each of these entries, as far as they are sealed."""
        names = await self._archive.segments(pool)
        wanted: dict[SegmentName, list[str]] = {}
        for position in positions:
            if (name := segment_of(names, position)) is not None:
                wanted.setdefault(name, []).append(position)
        found: dict[str, str] = {}
        for name, inside in wanted.items():
            walked = await self._walk(pool, name, inside)
            found |= {position: walked[position].hex() for position in inside if position in walked}
        return found

    async def _walk(self, pool: str, name: SegmentName, positions: list[str]) -> Walked:
        key = name.key(pool)
        walked = self._walked.get(key) or {}
        if any(position not in walked for position in positions):
            lines = await self._archive.lines(pool, name)
            walked = walked | await self._archive.run(_walk_on, lines, walked, max(map(lines.behind, positions)))
            self._walked.put(key, walked)
        return walked


def _walk_on(lines: Lines, walked: Walked, end: int) -> Walked:
    """Return the digests from where the walk stands up to the line at `end`."""
    digest, found = next(reversed(walked.values()), lines.before), Walked()
    for record in lines.records(len(walked), end):
        digest = found[record.position] = link(digest, record)
    return found
