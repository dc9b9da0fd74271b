"""The waiting room of claimed deliveries."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from services.notifier.lanes import Claimed, Lanes


def claimed(lane: str, number: int = 0, start_by_ms: int = 1000) -> Claimed:
    return Claimed("default", f"dlv_{lane}_{number}", lane, start_by_ms)


def lanes(**changes) -> Lanes:
    limits = {"running_max": 100, "lane_running_max": 2, "waiting_max": 1000, "lane_waiting_max": 100}
    return Lanes(**(limits | changes))


def take_all(room: Lanes, now_ms: int = 0) -> list[str]:
    return [taken.delivery_id for taken in iter(lambda: room.take(now_ms), None)]


def test_a_slow_lane_holds_up_nobody_else():
    room = lanes()
    for number in range(50):
        assert room.offer(claimed("slow", number))
    assert take_all(room) == ["dlv_slow_0", "dlv_slow_1"]

    room.offer(claimed("quick"))

    assert take_all(room) == ["dlv_quick_0"]


def test_lanes_with_work_are_served_in_turn():
    room = lanes(lane_running_max=10)
    for number in range(3):
        room.offer(claimed("a", number))
    room.offer(claimed("b"))
    assert take_all(room) == ["dlv_a_0", "dlv_b_0", "dlv_a_1", "dlv_a_2"]


def test_a_released_place_goes_to_the_next_of_the_lane():
    room = lanes(lane_running_max=1)
    first, second = claimed("a", 1), claimed("a", 2)
    room.offer(first)
    room.offer(second)
    assert room.take(0) == first
    assert room.take(0) is None

    room.release(first)

    assert room.take(0) == second


def test_the_process_as_a_whole_has_a_limit():
    room = lanes(running_max=3)
    for number in range(5):
        room.offer(claimed(f"lane{number}"))
    assert len(take_all(room)) == 3


def test_a_full_lane_and_a_full_room_refuse():
    room = lanes(lane_waiting_max=2, waiting_max=3)
    assert [room.offer(claimed("a", number)) for number in range(3)] == [True, True, False]
    assert room.offer(claimed("b", 0))
    assert not room.offer(claimed("c", 0))
    assert room.room == 0


def test_a_delivery_that_is_here_is_not_taken_twice():
    room = lanes()
    assert room.offer(claimed("a"))
    assert room.offer(claimed("a"))
    assert take_all(room) == ["dlv_a_0"]
    assert room.offer(claimed("a"))  # claimed again while its attempt is under way
    assert take_all(room) == []


def test_a_claim_that_is_too_old_is_let_go_and_may_come_again():
    room = lanes()
    room.offer(claimed("a", start_by_ms=10))
    assert take_all(room, now_ms=11) == []
    assert room.offer(claimed("a", start_by_ms=30))
    assert take_all(room, now_ms=20) == ["dlv_a_0"]


def test_a_claim_that_is_renewed_while_waiting_starts_late():
    room = lanes(lane_running_max=1)
    first = claimed("a", 1)
    room.offer(first)
    room.offer(claimed("a", 2, start_by_ms=10))
    assert room.take(0) == first
    room.offer(claimed("a", 2, start_by_ms=30))
    room.release(first)
    assert take_all(room, now_ms=20) == ["dlv_a_2"]


def test_what_waits_can_be_given_back_while_attempts_go_on():
    room = lanes(lane_running_max=1)
    first, second = claimed("a", 1), claimed("a", 2)
    room.offer(first)
    room.offer(second)
    assert room.take(0) == first
    assert room.clear() == [second]
    room.release(first)
    assert room.take(0) is None
    assert (room.running, room.waiting) == (0, 0)


STEPS = st.lists(st.tuples(st.sampled_from(["offer", "take", "release"]), st.integers(0, 3), st.integers(0, 20)))


@given(STEPS)
def test_limits_hold_and_nothing_is_lost_or_doubled(steps):
    room = lanes(running_max=4, lane_running_max=2, waiting_max=6, lane_waiting_max=3)
    waiting: set[str] = set()
    running: dict[str, Claimed] = {}
    for step, lane, number in steps:
        item = claimed(f"lane{lane}", number)
        if step == "offer" and room.offer(item) and item.delivery_id not in running:
            waiting.add(item.delivery_id)
        elif step == "take" and (taken := room.take(0)):
            waiting.remove(taken.delivery_id)
            running[taken.delivery_id] = taken
        elif step == "release" and running:
            room.release(running.pop(sorted(running)[number % len(running)]))
        per_lane = Counter(taken.lane for taken in running.values())
        assert room.running == len(running) <= 4
        assert room.waiting == len(waiting) <= 6
        assert max(per_lane.values(), default=0) <= 2
    for taken in [*running.values()]:
        room.release(taken)
    drained = 0
    while taken := room.take(0):
        room.release(taken)
        drained += 1
    assert drained == len(waiting)
