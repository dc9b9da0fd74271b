"""How the mirrors of the logs do, as metrics. Pure. The figures are the store's, the same in every process."""

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from contracts.store.vitals import MirrorVitals


def mirror_metrics(mirrors: Mapping[str, MirrorVitals], now_ms: int) -> Iterable[Metric]:
    """Return the families for these pools."""
    up = GaugeMetricFamily("headrace_mirror_up", "1 while a process mirrors the log.", labels=("pool",))
    behind = GaugeMetricFamily(
        "headrace_mirror_behind_seconds", "Age of the oldest entry that is not in the topic.", labels=("pool",)
    )
    counters = {
        "records": CounterMetricFamily("headrace_mirror_records", "Events in the topic.", labels=("pool",)),
        "failures": CounterMetricFamily("headrace_mirror_failures", "Tries to write that failed.", labels=("pool",)),
        "set_aside": CounterMetricFamily(
            "headrace_mirror_set_aside", "Entries that could be no record.", labels=("pool",)
        ),
    }  # fmt: skip
    for pool, each in mirrors.items():
        up.add_metric((pool,), float(each.until_ms > now_ms))
        behind.add_metric((pool,), each.behind_ms / 1000)
        for name, family in counters.items():
            family.add_metric((pool,), getattr(each, name))
    yield from (up, behind, *counters.values())
