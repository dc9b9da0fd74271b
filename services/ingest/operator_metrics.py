"""How far the readers of the logs are, and how many dead letters there are, as metrics. Pure.

Promises: what is not known has no series, which an alert can tell from 0; groups that are not ours share one label.
"""

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from contracts.consumers import Standing
from services.ingest.views.consumers import OURS

_OTHER, _KNOWN = "other", OURS | {"mirror"}


def operator_metrics(standings: Mapping[str, Sequence[Standing]], letters: Mapping[str, int]) -> Iterable[Metric]:
    """Return the families for these pools; of several other groups of a log the rearmost counts."""
    lag = _gauge("lag", "Entries that wait for a group of the log; no series where nobody knows.")
    behind = _gauge("behind_seconds", "Age of the first entry that waits for a group of the log.")
    pending = _gauge("pending", "Entries that are handed out and not done with.")
    for pool, found in standings.items():
        by_label = dict[str, list[Standing]]()
        for each in found:
            if each.stream == "log":
                by_label.setdefault(each.group if each.group in _KNOWN else _OTHER, []).append(each)
        for label, group in by_label.items():
            lags = [each.lag for each in group if each.lag is not None]
            if len(lags) == len(group):
                lag.add_metric((pool, label), max(lags))
            behind.add_metric((pool, label), max(each.behind_ms for each in group) / 1000)
            pending.add_metric((pool, label), sum(each.pending for each in group))
    dead = GaugeMetricFamily("headrace_dlq_jobs", "Jobs that failed for good and wait for a person.", labels=("pool",))
    for pool, count in letters.items():
        dead.add_metric((pool,), count)
    yield from (lag, behind, pending, dead)


def _gauge(name: str, about: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"headrace_log_consumer_{name}", about, labels=("pool", "group"))
