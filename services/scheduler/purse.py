"""Asks {_sys} for tokens of external limits, and tells it of pauses, beside the leader's loop.

Promises: asks only while jobs could use what is given, and at most as often as tokens can come, however many wait; what
was given becomes an entry of the next turn. A leader that dies in between loses tokens, which come again.
"""

import asyncio
from collections.abc import Callable, Mapping

from contracts import events as ev
from contracts.errors import StoreUnavailable
from contracts.store import Store
from services.scheduler.fold.limits import Limit

AGAIN_MS = 1_000  # after a call that failed
LEAST_HOLD_MS = 50  # two turns and a read


class Purse:
    """One term's asking."""

    def __init__(self, store: Store, wake: asyncio.Event, now_ms: Callable[[], int]) -> None:
        self._store, self._wake, self._now_ms = store, wake, now_ms
        self._ask_from_ms: dict[str, int] = {}  # monotonic
        self._hold_ms: dict[str, int] = {}  # for which tokens are asked to hold
        self._expired: dict[str, int] = {}  # in all, when they were last asked for
        self._given: list[ev.Event] = []
        self._asking: asyncio.Task[None] | None = None

    def take(self) -> list[ev.Event]:
        """Return what was given or paused since the last time."""
        given, self._given = self._given, []
        return given

    def ask(self, limits: Mapping[str, Limit], wanted: Mapping[str, int], pauses_ms: Mapping[str, int]) -> None:
        """Begin to ask for what is wanted, where it is time, and to tell of pauses. Nothing while a call is out."""
        if self._given or (self._asking is not None and not self._asking.done()):
            return
        now_ms = self._now_ms()
        due = {name: n for name, n in wanted.items() if self._ask_from_ms.get(name, 0) <= now_ms}
        told = {name: ms for name, ms in pauses_ms.items() if self._ask_from_ms.get(f"!{name}", 0) <= now_ms}
        for name in due:
            self._note_expired(name, limits[name])
        if due or told:
            rules = {name: (limits[name].rate, limits[name].window_ms) for name in due}
            self._asking = asyncio.create_task(self._run(rules, due, told))

    def next_ask_ms(self, wanted: Mapping[str, int]) -> int | None:
        """Return in how many ms it is time to ask again; None when nothing is wanted."""
        at_ms = min((self._ask_from_ms.get(name, 0) for name in wanted), default=None)
        return None if at_ms is None else max(1, at_ms - self._now_ms())

    async def aclose(self) -> None:
        """End what is out."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def _note_expired(self, name: str, limit: Limit) -> None:
        """Ask for tokens that hold longer when some were not used in time: this leader's turns may be slow."""
        hold_ms = self._hold_ms.get(name, LEAST_HOLD_MS)
        if limit.expired > self._expired.get(name, limit.expired):
            hold_ms = min(2 * hold_ms, max(LEAST_HOLD_MS, limit.window_ms))
        self._hold_ms[name], self._expired[name] = hold_ms, limit.expired

    async def _run(
        self, rules: Mapping[str, tuple[int, int]], due: Mapping[str, int], told: Mapping[str, int]
    ) -> None:  # fmt: skip
        for name, pause_ms in told.items():
            try:
                until_ms = await self._store.resources.shut(name, max(1, pause_ms))
                self._given.append(ev.ResourcePaused(resource=name, until_ms=until_ms))
            except StoreUnavailable:
                self._ask_from_ms[f"!{name}"] = self._now_ms() + AGAIN_MS
        for name, n in due.items():
            rate, window_ms = rules[name]
            try:
                grant = await self._store.resources.grant(name, rate, window_ms, n, self._hold_ms[name])
            except StoreUnavailable:
                self._ask_from_ms[name] = self._now_ms() + AGAIN_MS
                continue
            self._ask_from_ms[name] = self._now_ms() + (grant.more_ms or max(1, window_ms // rate))
            if grant.n:
                self._given.append(ev.ResourceGranted(resource=name, n=grant.n, until_ms=grant.until_ms))
        self._wake.set()
