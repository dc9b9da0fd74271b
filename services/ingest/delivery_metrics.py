"""How webhooks do, as metrics: what waits, what waits for too long, and what attempts came to. Pure.

The figures are the store's, so every ingest process shows the same; outcomes are a small set of words.
"""

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from contracts.deliveries import Survey


def delivery_metrics(surveys: Mapping[str, Survey]) -> Iterable[Metric]:
    """Return the families for these pools."""
    backlog = _gauge("backlog", "Deliveries that wait, due or not.")
    in_flight = _gauge("in_flight", "Attempts under way, in all processes.")
    overdue = _gauge(
        "overdue", "Deliveries due for more than a minute; `open`: behind a circuit, as is meant.", "circuit"
    )
    circuits = _gauge("circuits_open", "Endpoints that only fail and are left alone for a while.")
    attempts = CounterMetricFamily(
        "headrace_webhook_attempts", "Attempts to deliver.", labels=("pool", "result", "outcome")
    )
    for pool, survey in surveys.items():
        backlog.add_metric((pool,), survey.waiting)
        in_flight.add_metric((pool,), survey.in_flight)
        overdue.add_metric((pool, "closed"), survey.overdue)
        overdue.add_metric((pool, "open"), survey.behind_circuits)
        circuits.add_metric((pool,), survey.circuits_open)
        for outcome, count in survey.outcomes.items():
            attempts.add_metric((pool, "delivered" if outcome == "2xx" else "failed", outcome), count)
    yield from (backlog, in_flight, overdue, circuits, attempts)


def _gauge(name: str, about: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"headrace_webhook_{name}", about, labels=("pool", *labels))
