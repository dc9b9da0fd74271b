"""External rate limits as the pool's log knows them: tokens in hand, pauses, and who waits for tokens. Pure.

Tokens are given by {_sys}, for all pools together; here stands what this pool was given and has not used. A first offer
takes a job's tokens, an offer that comes to nothing gives them back. A provider's "not now" closes the limit at once,
by the very entry that tells of it; the leader then tells everybody.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from contracts.events import ResourceRule
from services.scheduler.fold.lines import JobClass, Waiting

UNLIMITED = 1 << 40  # of a limit that nobody has declared
Drawn = tuple[tuple[str, int], ...]  # limit and how many tokens of it a start takes


@dataclass(slots=True)
class Limit:
    """One declared limit. `refused_until_ms`: a provider said so, and not everybody knows yet; 0: nothing to tell."""

    rate: int
    window_ms: int
    tokens: int = 0
    paused_until_ms: int = 0
    refused_until_ms: int = 0


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
            self._tell(name)

    def meet(self, drawn: Drawn) -> None:
        """Let a job draw on limits that nobody has declared."""
        for name, _ in drawn:
            if name not in self.known:
                self.tell(name, UNLIMITED)

    def grant(self, name: str, n: int) -> None:
        """Add tokens."""
        self._move(name, n)

    def take(self, drawn: Drawn) -> None:
        """Use the tokens of one start."""
        for name, units in drawn:
            self._move(name, -units)

    def give_back(self, drawn: Drawn) -> None:
        """Undo a `take`: nothing was started."""
        self.take(tuple((name, -units) for name, units in drawn))

    def refuse(self, name: str, until_ms: int) -> bool:
        """Close a limit because its provider said so; False when it is not declared."""
        limit = self.known.get(name)
        if limit is None:
            return False
        limit.refused_until_ms = max(limit.refused_until_ms, until_ms)
        self._move(name, -limit.tokens)
        return True

    def pause(self, name: str, until_ms: int) -> None:
        """Note that everybody knows: {_sys} gives nothing before `until_ms`."""
        limit = self.known.get(name)
        if limit is None:
            return
        limit.paused_until_ms = max(limit.paused_until_ms, until_ms)
        if limit.refused_until_ms <= until_ms:
            limit.refused_until_ms = 0
        self._move(name, -limit.tokens)

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
            places_for: how many places could start a job of a class now.
        """
        wanted: dict[str, int] = {}
        for job_class, count in sorted(self.waiting.items()):
            starts = min(count, places_for(job_class)) if self._is_declared(job_class) else 0
            for name, units in job_class.resources if starts else ():
                if name in self.known:
                    wanted[name] = wanted.get(name, 0) + starts * units
        missing = ((name, min(n, self.known[name].rate) - self.known[name].tokens) for name, n in wanted.items())
        return {name: n for name, n in missing if n > 0 and not self.known[name].refused_until_ms}

    def snapshot(self) -> dict[str, list[int]]:
        """Return the limits; who waits follows from the jobs."""
        return {
            name: [each.rate, each.window_ms, each.tokens, each.paused_until_ms, each.refused_until_ms]
            for name, each in self.known.items()
        }

    def restore(self, data: Mapping[str, Iterable[int]]) -> None:
        """Take over a snapshot."""
        self.known = {name: Limit(*row) for name, row in data.items()}

    def _is_declared(self, job_class: JobClass) -> bool:
        return any(name in self.known for name, _ in job_class.resources)

    def _move(self, name: str, n: int) -> None:
        limit = self.known.get(name)
        if limit is not None:
            limit.tokens = max(0, limit.tokens + n)
            self._tell(name)

    def _tell(self, name: str) -> None:
        self.tell(name, self.known[name].tokens)
