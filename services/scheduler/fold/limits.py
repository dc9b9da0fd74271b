"""External rate limits as the pool's log knows them: tokens in hand, pauses, and who waits for tokens. Pure.

Tokens are given by {_sys}, for all pools together; here stands what this pool was given and has not used. A first offer
takes a job's tokens, an offer that comes to nothing gives them back. Tokens hold for a moment only, since {_sys} counts
them as used at its end: what is not used until then is dropped by an entry, before anything is chosen. A provider's
"not now" closes the limit at once, by the very entry that tells of it; the leader then tells everybody.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from contracts.events import ResourceRule
from services.scheduler.fold.lines import NEVER_MS, JobClass, Waiting

UNLIMITED = 1 << 40  # of a limit that nobody has declared
Drawn = tuple[tuple[str, int], ...]  # limit and how many tokens of it a start takes


@dataclass(slots=True)
class Limit:
    """One declared limit. `refused_until_ms`: a provider said so, and not everybody knows yet; 0: nothing to tell."""

    rate: int
    window_ms: int
    paused_until_ms: int = 0
    refused_until_ms: int = 0
    expired: int = 0  # tokens in all that nobody used in time
    lots: list[list[int]] = field(default_factory=list)  # until when, how many; what expires first stands first

    @property
    def tokens(self) -> int:
        """How many are in hand."""
        return sum(n for _, n in self.lots)

    def stale(self, now_ms: int) -> int:
        """Return how many of them must not be used any more."""
        return sum(n for until_ms, n in self.lots if until_ms <= now_ms)

    def put(self, n: int, until_ms: int) -> None:
        """Add tokens."""
        if n > 0:
            insort(self.lots, [until_ms, n])

    def draw(self, n: int) -> int:
        """Take up to `n`, what expires first; returns until when all of these hold."""
        until_ms = self.lots[0][0] if self.lots else NEVER_MS
        while n > 0 and self.lots:
            lot = self.lots[0]
            drawn = min(n, lot[1])
            n, lot[1] = n - drawn, lot[1] - drawn
            if not lot[1]:
                self.lots.pop(0)
        return until_ms


@dataclass(slots=True)
class Limits:
    """All limits of a pool. `tell` hears of every change of what may be drawn."""

    tell: Callable[[str, int], None]
    known: dict[str, Limit] = field(default_factory=dict)
    waiting: dict[JobClass, int] = field(default_factory=dict)  # jobs, of the classes that draw on something

    def declare(self, rules: Mapping[str, ResourceRule]) -> None:
        """Take over the rates; what is in hand stays."""
        for name, rule in rules.items():
            limit = self.known.setdefault(name, Limit(rule.rate, rule.window_ms))
            limit.rate, limit.window_ms = rule.rate, rule.window_ms
        self._tell(rules)

    def meet(self, drawn: Drawn) -> None:
        """Let a job draw on limits that nobody has declared."""
        for name, _ in drawn:
            if name not in self.known:
                self.tell(name, UNLIMITED)

    def grant(self, name: str, n: int, until_ms: int) -> None:
        """Add tokens."""
        self.give_back(((name, n),), until_ms)

    def take(self, drawn: Drawn) -> int:
        """Use the tokens of one start; returns until when they would have held."""
        untils_ms = [limit.draw(units) for name, units in drawn if (limit := self.known.get(name)) is not None]
        self._tell(name for name, _ in drawn)
        return min(untils_ms, default=NEVER_MS)

    def give_back(self, drawn: Drawn, until_ms: int) -> None:
        """Undo a `take`: nothing was started."""
        for name, units in drawn:
            if (limit := self.known.get(name)) is not None:
                limit.put(units, until_ms)
        self._tell(name for name, _ in drawn)

    def expire(self, name: str, n: int) -> None:
        """Drop tokens that hold no more."""
        limit = self.known.get(name)
        if limit is not None:
            limit.draw(n)
            limit.expired += n
            self._tell([name])

    def stale(self, now_ms: int) -> dict[str, int]:
        """Return the limits with tokens that hold no more, and how many."""
        found = ((name, limit.stale(now_ms)) for name, limit in sorted(self.known.items()))
        return {name: n for name, n in found if n}

    def refuse(self, name: str, until_ms: int) -> bool:
        """Close a limit because its provider said so; False when it is not declared."""
        limit = self.known.get(name)
        if limit is None:
            return False
        limit.refused_until_ms = max(limit.refused_until_ms, until_ms)
        self._empty(name)
        return True

    def pause(self, name: str, until_ms: int) -> None:
        """Note that everybody knows: {_sys} gives nothing before `until_ms`."""
        limit = self.known.get(name)
        if limit is None:
            return
        limit.paused_until_ms = max(limit.paused_until_ms, until_ms)
        if limit.refused_until_ms <= until_ms:
            limit.refused_until_ms = 0
        self._empty(name)

    def note(self, before: Waiting | None, after: Waiting | None) -> None:
        """Count a job that begins or ends to wait."""
        for job, sign in ((before, -1), (after, 1)):
            if job is not None and job.job_class.resources:
                left = self.waiting.get(job.job_class, 0) + sign
                if left:
                    self.waiting[job.job_class] = left
                else:
                    self.waiting.pop(job.job_class, None)

    def refusals(self) -> dict[str, int]:
        """Return the limits that a provider closed and until when, as far as not everybody knows."""
        return {name: limit.refused_until_ms for name, limit in self.known.items() if limit.refused_until_ms}

    def wanted(self, places_for: Callable[[JobClass], int]) -> dict[str, int]:
        """Return how many tokens more could be used now, by limit.

        Args:
            places_for: how many jobs of a class could be started now.
        """
        wanted: dict[str, int] = {}
        for job_class, count in sorted(self.waiting.items()):
            starts = min(count, places_for(job_class)) if self._is_declared(job_class) else 0
            for name, units in job_class.resources if starts else ():
                if name in self.known:
                    wanted[name] = wanted.get(name, 0) + starts * units
        missing = ((name, min(n, self.known[name].rate) - self.known[name].tokens) for name, n in wanted.items())
        return {name: n for name, n in missing if n > 0 and not self.known[name].refused_until_ms}

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Return the limits; who waits follows from the jobs."""
        return {name: asdict(limit) for name, limit in self.known.items()}

    def restore(self, data: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over a snapshot."""
        self.known = {name: Limit(**row) for name, row in data.items()}

    def _is_declared(self, job_class: JobClass) -> bool:
        return any(name in self.known for name, _ in job_class.resources)

    def _empty(self, name: str) -> None:
        self.known[name].lots.clear()
        self._tell([name])

    def _tell(self, names: Iterable[str]) -> None:
        for name in names:
            if (limit := self.known.get(name)) is not None:
                self.tell(name, limit.tokens)
