"""The metrics of one ingest process, as one table.

Promises: label values are bounded (route templates, catalogue codes, model names of the pipelines file, tiers;
never a tenant, a job or raw text), so the number of series is too.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_FAST_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class IngestMetrics:
    """Counters of this process. Each app has its own registry, so that two apps in one process do not clash."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "headrace_http_requests", "Answered requests.", ("method", "route", "status"), registry=self.registry
        )
        self._request_seconds = Histogram(
            "headrace_http_request_seconds",
            "From the head of a request to its answer.",
            ("method", "route"),
            buckets=_FAST_S,
            registry=self.registry,
        )
        self.jobs_created = Counter(
            "headrace_jobs_created",
            "Jobs admitted by this process.",
            ("tenant_class", "model", "priority"),
            registry=self.registry,
        )
        self.refused = Counter(
            "headrace_ratelimited", "Submissions refused by a limit.", ("policy",), registry=self.registry
        )
        self.append_seconds = Histogram(
            "headrace_log_append_seconds",
            "From the decision to admit to the answer of the store.",
            buckets=_FAST_S,
            registry=self.registry,
        )
        self.connections = Gauge("headrace_http_connections", "Open connections.", registry=self.registry)
        self.body_bytes = Gauge("headrace_http_body_bytes", "Bytes of bodies being worked on.", registry=self.registry)
        self.log_writable = Gauge("headrace_log_writable", "1 when the last verdict was ready.", registry=self.registry)
        self._created: dict[tuple[str, str, str], Counter] = {}
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request; the series is looked up once and kept."""
        key = (method, route, status)
        series = self._series.get(key)
        if series is None:
            counter = self._requests.labels(method, route, str(status))
            series = self._series[key] = (counter, self._request_seconds.labels(method, route))
        series[0].inc()
        series[1].observe(seconds)

    def count_created(self, tenant_class: str, model: str, priority: str) -> None:
        """Count one admitted job."""
        key = (tenant_class, model, priority)
        series = self._created.get(key)
        if series is None:
            series = self._created[key] = self.jobs_created.labels(*key)
        series.inc()

    def render(self) -> bytes:
        """Return the Prometheus text format."""
        return generate_latest(self.registry)
