"""Whose each byte of a device is: which models may be in its memory, and what has to leave for another. Pure.

Promises: what is admitted is never more than the device has beside its reserve and other processes; bytes are free
again only once the process that had them is reaped; one model loads at a time; nothing that is busy or pinned is
chosen to leave. Leaving are the fewest that make room, of those the least recently used, idle for too long first. Time
comes in as monotonic seconds. Does not promise that what it is told is true: a process may hold more than its slice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, count
from typing import TypeAlias

from contracts.model_spec import ModelSpec

_MIB = 1 << 20


class Stage(StrEnum):
    """What a resident is doing. In host memory only it has nothing of the device."""

    HOST = "prepared"
    LOADING = "loading"
    IDLE = "idle"
    BUSY = "busy"
    LEAVING = "leaving"
    STUCK = "stuck"  # it survived SIGKILL: its bytes are nobody's until it is gone


@dataclass(slots=True)
class Holding:
    """One child of the device and the bytes that are its own."""

    id: int
    model: ModelSpec
    stage: Stage = Stage.HOST
    bytes: int = 0
    idle_since_s: float = 0.0
    pinned: bool = False
    kept_bytes: int = 0  # the most it held while it was idle; 0: it never was

    @property
    def is_evictable(self) -> bool:
        """Whether it may have to leave for another."""
        return self.stage is Stage.IDLE and not self.pinned

    def keeps_until_s(self) -> float:
        """Return until when it stays although nobody needs it; only an idle one has such a time."""
        return float("inf") if self.model.keep_warm_s is None else self.idle_since_s + self.model.keep_warm_s


@dataclass(frozen=True, slots=True)
class Want:
    """What a pass needs. `bytes` 0: nobody has measured it, so it gets all there is. `alone`: in a fresh child, too."""

    model: ModelSpec
    bytes: int
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Use:
    """The model is resident: run it there with a slice of `bytes`, once those in `evict` have left."""

    id: int
    bytes: int
    evict: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """Load the model with a slice of `bytes`, once those in `evict` have left; `id` has it in host memory already."""

    id: int | None
    bytes: int
    evict: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now. `hopeful`: something of ours is under way that may make room; `for_bytes`: it is bytes that lack."""

    reason: str
    hopeful: bool = True
    for_bytes: bool = True


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Never, as long as the device is what it is and what is pinned stays."""

    reason: str


Decision: TypeAlias = Use | Load | Wait | TooLarge
_ON_DEVICE = (Stage.LOADING, Stage.IDLE, Stage.BUSY)
_UNDER_WAY = (Stage.LOADING, Stage.BUSY, Stage.LEAVING)


class Ledger:
    """The books of one device."""

    def __init__(self, total_bytes: int, reserve_bytes: int = 0, max_models: int = 1) -> None:
        self.total_bytes, self.reserve_bytes, self.max_models = total_bytes, reserve_bytes, max_models
        self.foreign_bytes = 0  # of other processes, as measured
        self.holdings: dict[int, Holding] = {}
        self._ids = count(1)

    @property
    def limit_bytes(self) -> int:
        """All that may be ours."""
        return max(0, self.total_bytes - self.reserve_bytes - self.foreign_bytes)

    @property
    def held_bytes(self) -> int:
        """All that has an owner among ours."""
        return sum(holding.bytes for holding in self.holdings.values())

    @property
    def free_bytes(self) -> int:
        """What has no owner; below 0 when other processes took what we hold."""
        return self.limit_bytes - self.held_bytes

    @property
    def room_bytes(self) -> int:
        """What one job may have if everything that is not pinned leaves."""
        fixed_bytes = 0
        if any(each.pinned or each.stage is Stage.STUCK for each in self.holdings.values()):
            fixed_bytes = sum(self.pinned_bytes.values()) + self._bytes_in(Stage.STUCK)
        return max(0, self.limit_bytes - fixed_bytes)

    @property
    def pinned_bytes(self) -> dict[str, int]:
        """What each pinned model, `name@version`, keeps for itself: only its own jobs have that, too."""
        return {each.model.reference: each.kept_bytes or each.bytes for each in self.holdings.values() if each.pinned}

    def idle(self, model: ModelSpec) -> Holding | None:
        """Return the resident that can run the model at once, the last used if there are several."""
        found = [each for each in self.holdings.values() if each.stage is Stage.IDLE and is_same(each.model, model)]
        return max(found, key=lambda each: each.idle_since_s) if len(found) > 1 else found[0] if found else None

    def decide(self, want: Want, now_s: float) -> Decision:
        """Say how the pass comes by its model; nothing changes."""
        own = None if want.alone else self.idle(want.model)
        if own is not None and 0 < want.bytes <= own.bytes + self.free_bytes:  # as between two jobs of a model
            return Use(own.id, max(want.bytes, own.bytes))
        most_bytes = self.total_bytes - self.reserve_bytes - self._pinned_beside(want.model)
        if want.bytes > most_bytes:
            return TooLarge(f"{want.model.reference} needs {mib(want.bytes)}, {self._said_to_be(most_bytes)}")
        others = [each for each in self.holdings.values() if each is not own]
        if want.alone or not want.bytes:
            return self._all_there_is(want, own, others)
        if own is None and any(each.stage is Stage.LOADING for each in others):
            return Wait(f"{want.model.reference} waits until another model is loaded", for_bytes=False)
        lacking_bytes = max(0, want.bytes - (own.bytes if own else 0)) - self.free_bytes
        surplus = 0 if own else 1 + sum(each.stage in _ON_DEVICE for each in others) - self.max_models
        leaving = _fewest(others, lacking_bytes, surplus, now_s)
        if leaving is None:
            return Wait(self._short_of(want), any(each.stage in _UNDER_WAY for each in others))
        return self._grant(want, own, want.bytes, leaving)

    def _all_there_is(self, want: Want, own: Holding | None, others: Sequence[Holding]) -> Decision:
        """Decide about a pass that shares the device with nobody."""
        if any(each.stage in _UNDER_WAY for each in others):
            return Wait(f"{want.model.reference} waits until nothing else runs: it gets the whole device")
        leaving = tuple(
            each.id
            for each in others
            if each.is_evictable or (want.alone and each.stage is Stage.IDLE and each.model == want.model)
        )
        staying_bytes = sum(each.bytes for each in others if each.id not in leaving)
        slice_bytes = self.limit_bytes - staying_bytes
        if slice_bytes <= 0 or slice_bytes < want.bytes:
            return Wait(self._short_of(want), hopeful=False)
        return self._grant(want, own, slice_bytes, leaving)

    def _grant(self, want: Want, own: Holding | None, slice_bytes: int, leaving: tuple[int, ...]) -> Use | Load:
        if own is not None:
            return Use(own.id, max(slice_bytes, own.bytes), leaving)
        hosts = (each for each in self.holdings.values() if each.stage is Stage.HOST and each.model == want.model)
        host = next(hosts, None)
        return Load(host.id if host else None, slice_bytes, leaving)

    def _pinned_beside(self, model: ModelSpec) -> int:
        return sum(size for name, size in self.pinned_bytes.items() if name != model.reference)

    def _said_to_be(self, most_bytes: int) -> str:
        pinned = f", {mib(self.total_bytes - self.reserve_bytes - most_bytes)} of it pinned"
        whole = self.total_bytes - self.reserve_bytes
        return f"the device has {mib(whole)} for models" + (pinned if whole != most_bytes else "")

    def _short_of(self, want: Want) -> str:
        parts = {
            "other processes": self.foreign_bytes,
            "reserve": self.reserve_bytes,
            **{stage.value: self._bytes_in(stage) for stage in Stage if stage is not Stage.HOST},
        }
        told = ", ".join(f"{name} {mib(size)}" for name, size in parts.items() if size)
        asked = mib(want.bytes) if want.bytes else "the whole device"
        free = f"{mib(max(0, self.free_bytes))} of {mib(self.total_bytes)} are free"
        return f"{want.model.reference} needs {asked}; {free} ({told or 'nothing is held'})"

    def _bytes_in(self, stage: Stage) -> int:
        return sum(each.bytes for each in self.holdings.values() if each.stage is stage)

    def host(self, model: ModelSpec) -> Holding:
        """Note a child that was started and has nothing of the device yet."""
        holding = Holding(next(self._ids), model)
        self.holdings[holding.id] = holding
        return holding

    def load(self, decision: Load) -> None:
        """Give a child its slice to load in; whoever asked has let all in `evict` leave before."""
        holding = self.holdings[decision.id or 0]
        assert holding.stage is Stage.HOST
        assert decision.bytes <= self.free_bytes
        holding.stage, holding.bytes = Stage.LOADING, decision.bytes
        holding.pinned = holding.model.pin and not any(
            each.pinned and each.model == holding.model for each in self.holdings.values()
        )

    def use(self, decision: Use) -> None:
        """Give an idle resident its slice to run in."""
        holding = self.holdings[decision.id]
        assert holding.stage is Stage.IDLE
        assert decision.bytes - holding.bytes <= max(0, self.free_bytes)
        holding.stage, holding.bytes = Stage.BUSY, decision.bytes

    def run(self, holding: Holding) -> None:
        """What was loaded for a pass runs it, in the slice it was loaded in."""
        assert holding.stage is Stage.LOADING
        holding.stage = Stage.BUSY

    def rest(self, holding: Holding, idle_bytes: int | None, now_s: float) -> None:
        """Take back what an idle resident does not hold; None: it could not be measured."""
        assert holding.stage in (Stage.LOADING, Stage.BUSY)
        holding.stage, holding.idle_since_s = Stage.IDLE, now_s
        if idle_bytes is not None:
            holding.bytes = idle_bytes
        holding.kept_bytes = max(holding.kept_bytes, holding.bytes)

    def leave(self, holding: Holding) -> None:
        """Let it end; its bytes stay its own until it is reaped."""
        if holding.stage is not Stage.STUCK:
            holding.stage, holding.pinned = Stage.LEAVING, False

    def stick(self, holding: Holding) -> None:
        """Note that it cannot be ended."""
        holding.stage, holding.pinned = Stage.STUCK, False

    def release(self, holding: Holding) -> None:
        """Take back the bytes of a process that is reaped."""
        self.holdings.pop(holding.id, None)

    def expired(self, now_s: float) -> list[Holding]:
        """Return the idle residents whose time to stay is over."""
        return [each for each in self.holdings.values() if each.is_evictable and each.keeps_until_s() <= now_s]

    def next_expiry_s(self) -> float:
        """Return when the next one's time to stay is over, infinity if none's."""
        times = (each.keeps_until_s() for each in self.holdings.values() if each.is_evictable)
        return min(times, default=float("inf"))


def is_same(one: ModelSpec, other: ModelSpec) -> bool:
    """Whether they can share a child. Mostly they are one object, and comparing all fields takes time between jobs."""
    return one is other or one == other


def mib(size_bytes: int) -> str:
    """Write bytes for people.

    >>> mib(1536 << 20), mib(1000)
    ('1536 MiB', '1000 B')
    """
    return f"{size_bytes // _MIB} MiB" if size_bytes >= _MIB or not size_bytes else f"{size_bytes} B"


def _fewest(among: Iterable[Holding], lacking_bytes: int, surplus: int, now_s: float) -> tuple[int, ...] | None:
    """Return the fewest that free so many bytes, at least `surplus` of them; of such sets the one used longest ago.

    Tries all sets of a size, so it is for a dozen residents and not for a hundred.
    """
    line = sorted(
        (each for each in among if each.is_evictable),
        key=lambda each: (each.keeps_until_s() > now_s, each.idle_since_s, each.id),
    )
    for size in range(max(0, surplus), len(line) + 1):
        enough = [
            places
            for places in combinations(range(len(line)), size)
            if sum(line[place].bytes for place in places) >= lacking_bytes
        ]
        if enough:
            return tuple(line[place].id for place in min(enough, key=lambda places: places[::-1]))
    return None
