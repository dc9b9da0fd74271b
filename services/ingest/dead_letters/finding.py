"""Goes through the dead letters of all pools, a bounded part at a time."""

from collections.abc import Iterator

from contracts.dead_letters import DeadLetter, LetterFilter
from contracts.store.dead_letters import MOST_AT_ONCE, NEWEST
from services.ingest.context import Context

MOST_SCANNED = 1_000  # in one call
Place = tuple[str, int, str]  # pool, when it failed, id
START: Place = ("", 0, "")
Found = tuple[str, DeadLetter]  # pool, letter


class LetterFinder:
    """Reads page by page; pools by name, in each the newest first, or the oldest."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def behind(
        self, wanted: LetterFilter, place: Place, limit: int, *, oldest_first: bool = False
    ) -> tuple[list[Found], Place | None]:
        """Return up to `limit` dead letters behind a place, and the place to go on from; None: there are no others.

        Few of those looked at may be meant: then the list is short, or empty, and goes on all the same.
        """
        found, scanned = list[Found](), 0
        for pool in self._pools(wanted, place[0]):
            at = place[1:] if pool == place[0] else _begin(wanted, oldest_first)
            while scanned < MOST_SCANNED and len(found) < limit:
                page = await self._page(pool, at, oldest_first)
                scanned += max(1, len(page))
                for letter in page:
                    at = (letter.failed_ms, letter.id)
                    if wanted.fits(letter):
                        found.append((pool, letter))
                    if len(found) == limit:
                        return found, (pool, *at)
                if len(page) < MOST_AT_ONCE or _is_behind(wanted, at[0], oldest_first):
                    break
            else:
                return found, (pool, *at)
        return found, None

    async def _page(self, pool: str, at: tuple[int, str], oldest_first: bool) -> list[DeadLetter]:
        letters = self._context.store.dead_letters
        return await self._context.within(letters.page(pool, at, MOST_AT_ONCE, oldest_first=oldest_first))

    def _pools(self, wanted: LetterFilter, first: str) -> Iterator[str]:
        yield from (name for name in sorted(self._context.pools) if name >= first and wanted.pool in ("", name))


def _begin(wanted: LetterFilter, oldest_first: bool) -> tuple[int, str]:
    if oldest_first:
        return wanted.since_ms - 1, ""
    return (wanted.until_ms, "") if wanted.until_ms else NEWEST


def _is_behind(wanted: LetterFilter, failed_ms: int, oldest_first: bool) -> bool:
    if oldest_first:
        return bool(wanted.until_ms) and failed_ms >= wanted.until_ms
    return failed_ms < wanted.since_ms
