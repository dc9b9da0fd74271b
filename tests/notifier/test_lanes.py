"""The waiting room of claimed deliveries."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from services.notifier.lanes import Claimed, Lanes


def claimed(lane: str, number: int = 0) -> Claimed:
    return Claimed("default", f"dlv_{lane}_{number}", lane)


def lanes(**changes) -> Lanes:
    limits = {"running_max": 100, "lane_running_max": 2, "waiting_max": 1000}
    return Lanes(**(limits | changes))


def offer(room: Lanes, item: Claimed, start_by_ms: int = 1000) -> bool:
    return room.offer(item, start_by_ms)


def take_all(room: Lanes, now_ms: int = 0) -> list[str]:
    return [taken.delivery_id for taken in iter(lambda: room.take(now_ms), None)]


def test_a_slow_lane_holds_up_nobody_else():
    room = lanes()
    for number in range(50):
        assert offer(room, claimed("slow", number))
    assert take_all(room) == ["dlv_slow_0", "dlv_slow_1"]

    offer(room, claimed("quick"))

    assert take_all(room) == ["dlv_quick_0"]


def test_lanes_with_work_are_served_in_turn():
    room = lanes(lane_running_max=10)
    for number in range(3):
        offer(room, claimed("a", number))
    offer(room, claimed("b"))
    assert take_all(room) == ["dlv_a_0", "dlv_b_0", "dlv_a_1", "dlv_a_2"]


def test_a_released_place_goes_to_the_next_of_the_lane():
    room = lanes(lane_running_max=1)
    first, second = claimed("a", 1), claimed("a", 2)
    offer(room, first)
    offer(room, second)
    assert room.take(0) == first
    assert room.take(0) is None

    room.release(first, 10)

    assert room.take(0) == second


def test_the_process_as_a_whole_has_a_limit():
    room = lanes(running_max=3)
    for number in range(5):
        offer(room, claimed(f"lane{number}"))
    assert len(take_all(room)) == 3


def test_a_full_lane_refuses_and_leaves_room_for_the_next():
    room = lanes(waiting_max=8)
    assert [offer(room, claimed("a", number)) for number in range(5)] == [True] * 4 + [False]
    assert [offer(room, claimed("b", number)) for number in range(3)] == [True, True, False]
    assert offer(room, claimed("c"))
    assert not offer(room, claimed("d")) or room.room == 0


def test_what_is_refused_comes_back_piece_by_piece_at_the_pace_of_its_lane():
    room = lanes(lane_running_max=5, waiting_max=200)
    for number in range(105):
        offer(room, claimed("a", number))
    taken = room.take(0)
    for _ in range(50):  # attempts of 100 ms, five at a time: one each 20 ms
        room.release(taken, 100)
        taken = room.take(0)
    waits_ms = [room.put_off_ms("a", 100, now_ms=0) for _ in range(3)]
    assert waits_ms == [49 * 20, 49 * 20 + 2000, 49 * 20 + 4000]


def test_nothing_is_put_off_beyond_a_minute_or_for_no_time_at_all():
    room = lanes()
    assert room.put_off_ms("new", 10**9, now_ms=0) == 200
    assert room.put_off_ms("new", 10**9, now_ms=0) == 60_000


def test_a_receiver_that_is_idle_is_forgotten():
    room = lanes()
    for number in range(1000):
        item = claimed(f"lane{number}")
        offer(room, item)
        room.put_off_ms(item.lane, 1, now_ms=0)
        assert room.take(0) == item
        room.release(item, 10)
    assert all(not about for name, about in vars(room).items() if not name.endswith("_max"))


def test_a_delivery_that_is_here_is_not_taken_twice():
    room = lanes()
    assert offer(room, claimed("a"))
    assert offer(room, claimed("a"))
    assert take_all(room) == ["dlv_a_0"]
    assert offer(room, claimed("a"))  # claimed again while its attempt is under way
    assert take_all(room) == []


def test_a_claim_that_is_too_old_is_let_go_and_may_come_again():
    room = lanes()
    offer(room, claimed("a"), 10)
    assert take_all(room, now_ms=11) == []
    assert offer(room, claimed("a"), 30)
    assert take_all(room, now_ms=20) == ["dlv_a_0"]


def test_a_claim_that_is_renewed_while_waiting_starts_late():
    room = lanes(lane_running_max=1)
    first = claimed("a", 1)
    offer(room, first)
    offer(room, claimed("a", 2), 10)
    assert room.take(0) == first
    offer(room, claimed("a", 2), 30)
    room.release(first, 10)
    assert take_all(room, now_ms=20) == ["dlv_a_2"]


def test_what_waits_can_be_given_back_while_attempts_go_on():
    room = lanes(lane_running_max=1)
    first, second = claimed("a", 1), claimed("a", 2)
    offer(room, first)
    offer(room, second)
    assert room.take(0) == first
    assert room.clear() == [second]
    room.release(first, 10)
    assert room.take(0) is None
    assert (room.running, room.waiting) == (0, 0)


STEPS = st.lists(st.tuples(st.sampled_from(["offer", "take", "release"]), st.integers(0, 3), st.integers(0, 20)))


@given(STEPS)
def test_limits_hold_and_nothing_is_lost_or_doubled(steps):
    room = lanes(running_max=4, lane_running_max=2, waiting_max=6)
    waiting: set[str] = set()
    running: dict[str, Claimed] = {}
    for step, lane, number in steps:
        item = claimed(f"lane{lane}", number)
        if step == "offer" and offer(room, item) and item.delivery_id not in running:
            waiting.add(item.delivery_id)
        elif step == "take" and (taken := room.take(0)):
            waiting.remove(taken.delivery_id)
            running[taken.delivery_id] = taken
        elif step == "release" and running:
            room.release(running.pop(sorted(running)[number % len(running)]), 10)
        per_lane = Counter(taken.lane for taken in running.values())
        assert room.running == len(running) <= 4
        assert room.waiting == len(waiting) <= 6
        assert max(per_lane.values(), default=0) <= 2
    for taken in [*running.values()]:
        room.release(taken, 10)
    drained = 0
    while taken := room.take(0):
        room.release(taken, 10)
        drained += 1
    assert drained == len(waiting)
