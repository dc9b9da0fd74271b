"""External limits in {_sys}: never more than the rate in any window, whoever asks, and a pause holds for everybody."""

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contracts.store import Store, keys
from services.scheduler.fold.limits import Limit

START_MS = 1_764_457_200_000


async def test_a_limit_gives_its_rate_at_once_and_says_when_more_will_come(store: Store) -> None:
    first = await store.resources.grant("moderation", 5, 1_000, 3, 0, START_MS)
    second = await store.resources.grant("moderation", 5, 1_000, 3, 0, START_MS + 10)
    third = await store.resources.grant("moderation", 5, 1_000, 3, 0, START_MS + 20)

    assert (first.n, first.more_ms) == (3, 0)
    assert (second.n, third.n) == (2, 0)
    again = await store.resources.grant("moderation", 5, 1_000, 3, 0, START_MS + 20 + third.more_ms)
    assert again.n == 3
    assert await store.client.pttl(keys.resource("moderation")) > 0


async def test_a_pause_holds_for_everybody_and_a_shorter_one_does_not_end_it(store: Store) -> None:
    assert await store.resources.shut("moderation", 5_000, START_MS) == START_MS + 5_000
    assert await store.resources.shut("moderation", 1_000, START_MS + 1) == START_MS + 5_000

    refused = await store.resources.grant("moderation", 5, 1_000, 1, 0, START_MS + 4_000)

    assert (refused.n, refused.more_ms) == (0, 1_000)
    assert (await store.resources.grant("moderation", 5, 1_000, 1, 0, START_MS + 5_000)).n == 1


async def test_tokens_that_hold_are_counted_from_their_end_on(store: Store) -> None:
    held = await store.resources.grant("moderation", 5, 1_000, 5, 300, START_MS)
    assert START_MS + 300 <= held.until_ms < START_MS + 300 + 1_000 // 32 + 1

    refused = await store.resources.grant("moderation", 5, 1_000, 1, 0, START_MS + 1_001)
    assert (refused.n, START_MS + 1_001 + refused.more_ms) == (0, held.until_ms + 1_000)
    assert (await store.resources.grant("moderation", 5, 1_000, 1, 0, held.until_ms + 1_000)).n == 1


STEPS = st.lists(
    st.tuples(st.integers(0, 120), st.integers(0, 1), st.integers(0, 2), st.booleans()), min_size=10, max_size=40
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 3), st.integers(20, 200), st.integers(0, 200), STEPS)
@example(1, 20, 0, [(0, 0, 0, False), (90, 1, 1, False), (0, 0, 1, False)])  # one lay in hand while another was given
async def test_no_window_ever_sees_more_starts_than_the_rate_however_long_tokens_lie_in_hand(
    store: Store, rate: int, window_ms: int, hold_ms: int, steps: list[tuple[int, int, int, bool]]
) -> None:
    """Two pools ask, use, and give back what came to nothing; both drop what holds no more before they use anything."""
    await store.client.delete(keys.resource("moderation"))
    now_ms, used_at = START_MS, list[int]()
    pools = [Limit(rate, window_ms), Limit(rate, window_ms)]
    for later_ms, which, count, in_vain in steps:
        now_ms += later_ms
        hand = pools[which]
        hand.draw(hand.stale(now_ms))
        given = await store.resources.grant("moderation", rate, window_ms, rate, hold_ms, now_ms)
        hand.put(given.n, given.until_ms)
        for _ in range(min(count, hand.tokens)):
            until_ms = hand.draw(1)
            if in_vain:
                hand.put(1, until_ms)
            else:
                used_at.append(now_ms)
        assert sum(at_ms > now_ms - window_ms for at_ms in used_at) <= rate


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 20), st.integers(20, 2_000), st.lists(st.tuples(st.integers(0, 400), st.integers(1, 30))))
async def test_no_window_ever_holds_more_than_the_rate(
    store: Store, rate: int, window_ms: int, asks: list[tuple[int, int]]
) -> None:
    await store.client.delete(keys.resource("moderation"))
    now_ms, given_at = START_MS, list[tuple[int, int]]()
    for later_ms, wanted in asks:
        now_ms += later_ms
        grant = await store.resources.grant("moderation", rate, window_ms, wanted, 0, now_ms)
        assert 0 <= grant.n <= wanted
        given_at.append((now_ms, grant.n))
        assert sum(n for at_ms, n in given_at if at_ms > now_ms - window_ms) <= rate
