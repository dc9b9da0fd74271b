"""Progress is told newest first and not too often, the end of a job ends it; strict order is one delivery at a time."""

from contracts import events as ev
from contracts.deliveries import Ask, Attempted, PlannedDelivery, Settlement
from contracts.store import Store, Word

POOL, NOW = "default", 4_000_000_000_000
BODY = {"body": "{}", "event": "job.progress", "message": "m"}


def progress(n: int) -> PlannedDelivery:
    return PlannedDelivery(f"dlv_j_{n}_a_0", BODY, "a", "t_a", "j", n, interval_ms=1000)


async def plan(store: Store, *deliveries: PlannedDelivery, at_ms: int = NOW) -> int:
    return await store.deliveries.plan(POOL, "", deliveries, [], now_ms=at_ms)


async def claim(store: Store, at_ms: int, room: int = 5) -> list[str]:
    _, claims = await store.deliveries.claim(POOL, [Ask("a", room, 5)], 6000, now_ms=at_ms)
    return sorted(claimed.id for claimed in claims)


async def test_of_progress_only_the_newest_waits_and_an_older_one_is_no_news(store: Store) -> None:
    """Field case 96: at most one in an interval, newest wins, however late an older one is planned."""
    assert await plan(store, progress(1), progress(2), progress(5)) == 3
    assert await plan(store, progress(3)) == 0
    assert await claim(store, NOW) == ["dlv_j_5_a_0"]
    assert await plan(store, progress(6), progress(7), at_ms=NOW + 10) == 2
    assert await claim(store, NOW + 999) == []
    assert await claim(store, NOW + 1000) == ["dlv_j_7_a_0"]


async def test_the_end_of_a_job_drops_the_progress_that_waits_and_is_never_dropped_itself(store: Store) -> None:
    last = PlannedDelivery("dlv_j_9_a_0", BODY, "a", "t_a", "j", 9, last=True)
    await plan(store, progress(8))
    await plan(store, last)
    assert await plan(store, progress(7)) == 0
    assert await claim(store, NOW) == ["dlv_j_9_a_0"]
    assert await store.deliveries.page(POOL, "t_a") != []
    assert await store.deliveries.read(POOL, "dlv_j_8_a_0") is None


async def test_progress_that_failed_is_not_tried_again_when_there_is_newer(store: Store) -> None:
    await plan(store, progress(1))
    await claim(store, NOW)
    await plan(store, progress(2), at_ms=NOW + 1)
    failed = Attempted(succeeded=False, outcome="5xx", took_ms=1)
    settled = await store.deliveries.settle(
        POOL, Settlement("dlv_j_1_a_0", "a", 1, {}, failed, next_due_ms=NOW + 5000), now_ms=NOW + 2
    )
    assert settled.word is Word.APPLIED
    assert (await store.deliveries.read(POOL, "dlv_j_1_a_0") or {})["state"] == "superseded"
    assert await claim(store, NOW + 1000) == ["dlv_j_2_a_0"]


async def test_a_warning_is_given_once_at_each_mark(store: Store) -> None:
    """Field case 103: whoever sees it first tells it, the others do not."""
    await plan(store, progress(1))
    await claim(store, NOW)
    failed = Attempted(succeeded=False, outcome="5xx", took_ms=1)
    settled = await store.deliveries.settle(POOL, Settlement("dlv_j_1_a_0", "a", 1, {}, failed, NOW + 1), now_ms=NOW)
    warning = ev.EndpointFailing(
        tenant_id="t_a", endpoint_id="wh_a", percent=50, since_ms=NOW, disables_at_ms=NOW + 10, failures=1,
        delivery_id="dlv_j_1_a_0", job_id="j", event_type="e", message_id="m", attempts=1, outcome="status_500",
    )  # fmt: skip
    told = [
        await store.deliveries.warn(POOL, "a", percent, settled.since_ms, "wh_a", warning, now_ms=NOW)
        for percent in (50, 50, 70)
    ]
    assert [answer.word for answer in told] == [Word.APPLIED, Word.CONFLICT, Word.APPLIED]
