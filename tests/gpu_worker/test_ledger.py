"""The books of a device, without one: what is admitted, who leaves, and what is never promised twice."""

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contracts.model_spec import ModelSpec
from services.gpu_worker.residency.ledger import Holding, Ledger, Load, Stage, TooLarge, Use, Wait, Want
from tests.gpu_worker.rig import model

MIB = 1 << 20
MODELS = [replace(model("noop"), name=f"m{number}", version="1") for number in range(5)]
PINNED = replace(MODELS[0], name="pinned", pin=True)


def book(total_mib: int = 100, **more: int) -> Ledger:
    return Ledger(total_mib * MIB, more.pop("reserve_mib", 0) * MIB, more.pop("max_models", 8))


def resident(ledger: Ledger, spec: ModelSpec, size_mib: int, used_at_s: float = 0.0) -> Holding:
    """Make a model resident that needed `size_mib`, all of which it keeps."""
    holding = ledger.host(spec)
    decision = ledger.decide(Want(spec, size_mib * MIB), used_at_s)
    assert decision == Load(holding.id, size_mib * MIB)
    ledger.load(decision)
    ledger.rest(holding, None, used_at_s)
    return holding


def busy(ledger: Ledger, holding: Holding) -> None:
    ledger.use(Use(holding.id, holding.bytes))


def test_a_model_that_is_there_is_used_and_keeps_its_slice() -> None:
    ledger = book()
    there = resident(ledger, MODELS[0], 40)
    there.bytes = 10 * MIB  # it gave most of it back
    assert ledger.decide(Want(MODELS[0], 30 * MIB), 1) == Use(there.id, 30 * MIB)
    assert ledger.decide(Want(MODELS[0], 5 * MIB), 1) == Use(there.id, 10 * MIB)


def test_the_fewest_leave_and_of_those_the_one_used_longest_ago() -> None:
    ledger = book()
    small, large, other = (resident(ledger, MODELS[n], size, n) for n, size in ((0, 20), (1, 40), (2, 40)))
    for needed, leaving in ((20, (small,)), (40, (large,)), (60, (small, large)), (80, (large, other))):
        decision = ledger.decide(Want(MODELS[3], needed * MIB), 9)
        assert isinstance(decision, Load)
        assert sorted(decision.evict) == sorted(each.id for each in leaving)


def test_who_has_stayed_long_enough_leaves_before_others() -> None:
    brief = replace(MODELS[1], keep_warm_s=1.0)
    ledger = book()
    resident(ledger, MODELS[0], 50, 0)
    expiring = resident(ledger, brief, 50, 5)
    assert ledger.next_expiry_s() == 6
    assert ledger.expired(5.9) == []
    assert ledger.expired(6) == [expiring]
    decision = ledger.decide(Want(MODELS[2], 50 * MIB), 7)
    assert decision == Load(None, 50 * MIB, (expiring.id,))


def test_nothing_busy_or_pinned_leaves() -> None:
    ledger = book()
    pinned = resident(ledger, PINNED, 30)
    working = resident(ledger, MODELS[1], 40)
    busy(ledger, working)
    decision = ledger.decide(Want(MODELS[2], 60 * MIB), 1)
    assert isinstance(decision, Wait)
    assert decision.hopeful
    assert decision.reason == "m2@1 needs 60 MiB; 30 MiB of 100 MiB are free (idle 30 MiB, busy 40 MiB)"
    assert isinstance(ledger.decide(Want(MODELS[2], 71 * MIB), 1), TooLarge)
    assert isinstance(ledger.decide(Want(PINNED, 100 * MIB), 1), Wait)  # its own bytes are not in its way
    assert ledger.room_bytes == 70 * MIB
    assert pinned.stage is Stage.IDLE


def test_what_can_never_fit_says_what_there_is() -> None:
    ledger = book(reserve_mib=10)
    decision = ledger.decide(Want(MODELS[0], 91 * MIB), 0)
    assert decision == TooLarge("m0@1 needs 91 MiB, the device has 90 MiB for models")
    resident(ledger, PINNED, 30)
    decision = ledger.decide(Want(MODELS[0], 61 * MIB), 0)
    assert decision == TooLarge("m0@1 needs 61 MiB, the device has 90 MiB for models, 30 MiB of it pinned")


def test_other_processes_make_a_job_wait_and_are_named() -> None:
    """Field case 70: what others hold of the device is subtracted, and is the reason that is shown."""
    ledger = book()
    ledger.foreign_bytes = 80 * MIB
    decision = ledger.decide(Want(MODELS[0], 30 * MIB), 0)
    reason = "m0@1 needs 30 MiB; 20 MiB of 100 MiB are free (other processes 80 MiB)"
    assert decision == Wait(reason, hopeful=False)


def test_a_job_that_nobody_measured_has_the_device_for_itself() -> None:
    ledger = book()
    idle = resident(ledger, MODELS[0], 30)
    assert ledger.decide(Want(MODELS[1], 0), 1) == Load(None, 100 * MIB, (idle.id,))
    busy(ledger, idle)
    assert isinstance(ledger.decide(Want(MODELS[1], 0), 1), Wait)
    ledger.rest(idle, None, 2)
    assert ledger.decide(Want(MODELS[0], 0), 3) == Use(idle.id, 100 * MIB)


def test_a_job_that_runs_alone_gets_a_fresh_child_and_all_there_is() -> None:
    """Field case 71: what failed for want of memory is tried again where nothing is left over."""
    ledger = book()
    own, other = resident(ledger, MODELS[0], 30), resident(ledger, MODELS[1], 30)
    decision = ledger.decide(Want(MODELS[0], 50 * MIB, alone=True), 1)
    assert decision == Load(None, 100 * MIB, (own.id, other.id))


def test_one_model_loads_at_a_time_while_others_run() -> None:
    ledger = book()
    working = resident(ledger, MODELS[0], 30)
    holding = ledger.host(MODELS[1])
    ledger.load(Load(holding.id, 30 * MIB))
    decision = ledger.decide(Want(MODELS[2], 10 * MIB), 1)
    assert isinstance(decision, Wait)
    assert not decision.for_bytes
    assert isinstance(ledger.decide(Want(MODELS[0], 30 * MIB), 1), Use)
    ledger.run(holding)
    assert isinstance(ledger.decide(Want(MODELS[2], 10 * MIB), 1), Load)
    assert working.stage is Stage.IDLE


def test_there_are_never_more_models_than_allowed() -> None:
    ledger = book(max_models=2)
    oldest = resident(ledger, MODELS[0], 1, 0)
    resident(ledger, MODELS[1], 50, 1)
    assert ledger.decide(Want(MODELS[2], 1 * MIB), 2) == Load(None, 1 * MIB, (oldest.id,))


sizes = st.integers(1, 60).map(lambda size: size * MIB)


class Books(RuleBasedStateMachine):
    """Does what a device's shell does, in any order, and looks at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(100 * MIB, 10 * MIB, max_models=3)
        self.now_s = 0.0

    @rule(spec=st.sampled_from([*MODELS, PINNED]), size=st.one_of(st.just(0), sizes), alone=st.booleans())
    def ask(self, spec: ModelSpec, size: int, alone: bool) -> None:
        self.now_s += 1
        want = Want(spec, size, alone)
        before = self.ledger.held_bytes
        match decision := self.ledger.decide(want, self.now_s):
            case Use() | Load():
                leaving = [self.ledger.holdings[number] for number in decision.evict]
                own = self.ledger.holdings.get(decision.id or 0)
                assert all(each.stage is Stage.IDLE for each in leaving)
                assert not any(each.pinned and not (alone and each.model == spec) for each in leaving)
                self.is_least(want, leaving, own)
                for each in leaving:
                    self.ledger.leave(each)
                assert self.ledger.held_bytes == before  # nothing is free before it is reaped
                for each in leaving:
                    self.ledger.release(each)
                self.take(decision, spec)
            case TooLarge():
                assert size > self.ledger.room_bytes
            case Wait():
                assert decision.reason

    def take(self, decision: Use | Load, spec: ModelSpec) -> None:
        if isinstance(decision, Use):
            self.ledger.use(replace(decision, evict=()))
        else:
            number = self.ledger.host(spec).id if decision.id is None else decision.id
            self.ledger.load(Load(number, decision.bytes))

    def is_least(self, want: Want, leaving: list[Holding], own: Holding | None) -> None:
        """No smaller set would have done; only where the pass shares the device."""
        if want.alone or not want.bytes or not leaving:
            return
        others = [each for each in self.ledger.holdings.values() if each.is_evictable and each is not own]
        needed = want.bytes - (own.bytes if own and own.stage is Stage.IDLE else 0) - self.ledger.free_bytes
        on_device = [e for e in self.ledger.holdings.values() if e.stage in (Stage.LOADING, Stage.IDLE, Stage.BUSY)]
        is_use = own is not None and own.stage is Stage.IDLE
        surplus = 0 if is_use else len(on_device) + 1 - self.ledger.max_models
        for smaller in itertools.combinations(others, len(leaving) - 1):
            assert sum(each.bytes for each in smaller) < needed or len(smaller) < surplus

    @rule(spec=st.sampled_from(MODELS))
    def prepare(self, spec: ModelSpec) -> None:
        if not any(each.stage is Stage.HOST for each in self.ledger.holdings.values()):
            assert self.ledger.host(spec).bytes == 0

    @rule(data=st.data(), used=st.one_of(st.none(), sizes))
    def rest(self, data: st.DataObject, used: int | None) -> None:
        self.now_s += 1
        working = [e for e in self.ledger.holdings.values() if e.stage in (Stage.LOADING, Stage.BUSY)]
        if working:
            holding = data.draw(st.sampled_from(working))
            self.ledger.rest(holding, None if used is None else min(used, holding.bytes), self.now_s)

    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        loading = [e for e in self.ledger.holdings.values() if e.stage is Stage.LOADING]
        if loading:
            self.ledger.run(data.draw(st.sampled_from(loading)))

    @rule(data=st.data(), is_stuck=st.booleans())
    def die(self, data: st.DataObject, is_stuck: bool) -> None:
        if self.ledger.holdings:
            holding = data.draw(st.sampled_from(list(self.ledger.holdings.values())))
            before = self.ledger.held_bytes
            (self.ledger.stick if is_stuck else self.ledger.leave)(holding)
            assert self.ledger.held_bytes == before
            if not is_stuck:
                self.ledger.release(holding)

    @rule(foreign=st.integers(0, 30).map(lambda size: size * MIB))
    @precondition(lambda self: self.ledger.held_bytes <= 60 * MIB)
    def others_come(self, foreign: int) -> None:
        self.ledger.foreign_bytes = foreign

    @invariant()
    def is_never_promised_twice(self) -> None:
        ledger = self.ledger
        assert ledger.held_bytes <= ledger.total_bytes - ledger.reserve_bytes - ledger.foreign_bytes
        assert ledger.free_bytes >= 0
        assert all(each.bytes >= 0 for each in ledger.holdings.values())

    @invariant()
    def one_loads_at_a_time(self) -> None:
        assert sum(each.stage is Stage.LOADING for each in self.ledger.holdings.values()) <= 1

    @invariant()
    def models_are_counted(self) -> None:
        on_device = (Stage.LOADING, Stage.IDLE, Stage.BUSY)
        assert sum(each.stage in on_device for each in self.ledger.holdings.values()) <= self.ledger.max_models


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBooks = Books.TestCase


@given(st.lists(st.tuples(sizes, st.integers(0, 50)), max_size=6), sizes)
@settings(max_examples=100, deadline=None)
def test_a_set_that_leaves_is_the_oldest_of_its_size(held: list[tuple[int, int]], needed: int) -> None:
    """Least recently used: no set of as few, all used before the newest that leaves, would have made room."""
    ledger = Ledger(400 * MIB, 0, 8)
    for number, (size, at_s) in enumerate(held):
        resident(ledger, replace(MODELS[0], name=f"x{number}"), size // MIB, at_s)
    ledger.foreign_bytes = ledger.free_bytes  # nothing is free but by eviction
    decision = ledger.decide(Want(MODELS[1], needed), 99)
    if isinstance(decision, Wait):
        assert sum(size for size, _ in held) < needed
        return
    assert isinstance(decision, Load)
    leaving = [ledger.holdings[number] for number in decision.evict]
    newest_s = max(each.idle_since_s for each in leaving)
    older = [each for each in ledger.holdings.values() if each.idle_since_s < newest_s]
    for others in itertools.combinations(older, len(leaving)):
        assert sum(each.bytes for each in others) < needed
