"""How a mirror does is told: by readiness, by metrics, and with what to do when nobody mirrors any more."""

from dataclasses import replace

from contracts.store import Store, keys
from contracts.store.mirror import Moved
from contracts.store.vitals import Vitals, read_vitals
from services.ingest.metrics import IngestMetrics
from services.ingest.readiness import Readiness, warnings_of
from tests.notifier.hooked import POOL, admit


async def vitals_of(store: Store) -> Vitals:
    return await read_vitals(store.client, (POOL,))


def shown(vitals: Vitals) -> dict[str, object]:
    readiness = Readiness(clock=lambda: 0.0, wall_ms=lambda: 0)
    readiness.vitals = vitals
    checks = readiness.document()["checks"]
    assert isinstance(checks, dict)
    return checks["mirror"]


async def test_a_mirror_is_shown_with_its_lag_and_why_it_does_not_go_on(store: Store) -> None:
    assert (await vitals_of(store)).mirrors == {}
    await admit(store, None)
    assert await store.mirror.lead(POOL, "me", 60_000, "events", "no broker", 3) is not None
    stuck = await vitals_of(store)
    end = await store.end_of_log(POOL)
    assert await store.mirror.move(POOL, "me", "0-0", Moved(end, 1, 1, {0: end}))
    await store.mirror.lead(POOL, "me", 60_000, "events")
    even = await vitals_of(store)

    assert (stuck.mirrors[POOL].failures, stuck.mirrors[POOL].reason) == (3, "no broker")
    assert (even.mirrors[POOL].records, even.mirrors[POOL].behind_ms, even.mirrors[POOL].reason) == (1, 0, "")
    told = shown(replace(stuck, mirrors={POOL: replace(stuck.mirrors[POOL], behind_ms=90_000)}))
    assert told == {POOL: {"runs": True, "topic": "events", "reason": "no broker", "behindSeconds": 90}}
    metrics = IngestMetrics()
    metrics.note_mirrors(replace(stuck, mirrors={POOL: replace(stuck.mirrors[POOL], behind_ms=90_000)}))
    for line in ("up", "failures_total", "behind_seconds", "records_total", "set_aside_total"):
        assert f'headrace_mirror_{line}{{pool="default"}}'.encode() in metrics.render()
    assert b'headrace_mirror_behind_seconds{pool="default"} 90.0' in metrics.render()
    assert not any("mirror" in warning for warning in warnings_of(even))


async def test_a_log_that_is_kept_for_a_mirror_that_is_gone_is_named_with_what_to_do(store: Store) -> None:
    """A group that nobody reads must not keep the log for ever in silence."""
    await store.mirror.lead(POOL, "me", 1, "events")
    await store.client.hset(keys.mirror(POOL), "until", 1)
    (warning,) = [each for each in warnings_of(await vitals_of(store)) if "mirror" in each]
    assert "pool default" in warning
    assert "headrace consumers drop default mirror" in warning
    assert shown(await vitals_of(store))[POOL]["runs"] is False
