"""The metrics of one ingest process, as one table.

Promises: label values are bounded (route templates, catalogue codes, model names of the pipelines file, tiers; never a
tenant, a job or raw text), so the number of series is too. Hot paths count in plain integers, which are turned into
metrics when somebody asks: the event loop is one thread, so there is nothing to lock.
"""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from contracts.consumers import Standing
from contracts.deliveries import Survey
from contracts.questions import Backlog
from contracts.store.vitals import MirrorVitals, Vitals
from services.ingest.delivery_metrics import delivery_metrics
from services.ingest.durations import Durations
from services.ingest.mirror_metrics import mirror_metrics
from services.ingest.operator_metrics import operator_metrics
from services.ingest.stream_figures import StreamFigures

Labels = tuple[str, ...]
_OF_GPUS = (
    ("bytesTotal", "memory_total_bytes", "Memory of a GPU, as its worker said last."),
    ("bytesFree", "memory_free_bytes", "Free memory of a GPU."),
    ("bytesForeign", "memory_foreign_bytes", "Memory of a GPU that is no worker's."),
    ("utilizationPercent", "utilization_percent", "Time in which a GPU computed."),
    ("temperatureC", "temperature_celsius", "Temperature of a GPU."),
)


class IngestMetrics(Collector):
    """Counters of this process. Each app has its own registry, so that two apps in one process do not clash."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self.connections = Gauge("headrace_http_connections", "Open connections.", registry=self.registry)
        self.body_bytes = Gauge("headrace_http_body_bytes", "Bytes of bodies being worked on.", registry=self.registry)
        self.log_writable = Gauge("headrace_log_writable", "1 when the last verdict was ready.", registry=self.registry)
        self.archive_entries = Gauge(
            "headrace_archive_entries", "Entries of the log in the archive.", ("pool",), registry=self.registry
        )
        self.archive_behind = Gauge(
            "headrace_archive_behind_seconds", "Age of the oldest entry that is not archived.", ("pool",),
            registry=self.registry,
        )  # fmt: skip
        self.set_aside = Gauge(
            "headrace_scheduler_aside", "Jobs and slots out of choice after a scheduler.mismatch.", ("pool",),
            registry=self.registry,
        )  # fmt: skip
        self.audit_ok = Gauge(
            "headrace_audit_verify_ok", "1 when the last audit of the whole pool found all right, else 0.", ("pool",),
            registry=self.registry,
        )  # fmt: skip
        self.audit_at = Gauge(
            "headrace_audit_verify_timestamp_seconds", "When that audit ended.", ("pool",), registry=self.registry
        )
        self.gpus = {
            field: Gauge(f"headrace_gpu_{name}", text, ("pool", "device"), registry=self.registry)
            for field, name, text in _OF_GPUS
        }
        self.append_seconds = Durations()
        self.streams = StreamFigures()
        self._requests: dict[tuple[str, str, int], int] = {}
        self._durations: dict[tuple[str, str], Durations] = {}
        self._created: dict[Labels, int] = {}
        self._refused: dict[Labels, int] = {}
        self._backlogs: dict[str, Backlog] = {}
        self._surveys: dict[str, Survey] = {}
        self._standings: dict[str, list[Standing]] = {}
        self._letters: dict[str, int] = {}
        self._mirrors: dict[str, MirrorVitals] = {}
        self._now_ms = 0

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        key = (method, route, status)
        self._requests[key] = self._requests.get(key, 0) + 1
        durations = self._durations.get((method, route))
        if durations is None:
            durations = self._durations[method, route] = Durations()
        durations.observe(seconds)

    def count_created(self, tenant_class: str, model: str, priority: str) -> None:
        """Count one admitted job."""
        key = (tenant_class, model, priority)
        self._created[key] = self._created.get(key, 0) + 1

    def count_refused(self, policy: str) -> None:
        """Count one submission refused by a limit."""
        self._refused[policy,] = self._refused.get((policy,), 0) + 1

    def note_backlogs(self, told: Mapping[str, Backlog]) -> None:
        """Take what the leaders say waits in their pools; a pool of which nothing was said has no series."""
        self._backlogs = dict(told)

    def note_deliveries(self, surveys: Mapping[str, Survey]) -> None:
        """Take how the deliveries of each pool do."""
        self._surveys = dict(surveys)

    def note_operators(self, standings: Mapping[str, list[Standing]], letters: Mapping[str, int]) -> None:
        """Take how far the readers of each pool's log are, and how many dead letters it has."""
        self._standings, self._letters = dict(standings), dict(letters)

    def note_archives(self, vitals: Vitals | None) -> None:
        """Take how the archives of the pools do; a pool without one has no series."""
        for pool, each in (vitals.archives if vitals is not None else {}).items():
            self.archive_entries.labels(pool).set(each.entries)
            self.archive_behind.labels(pool).set(each.behind_ms / 1000)

    def note_mirrors(self, vitals: Vitals | None) -> None:
        """Take how the mirrors of the pools do; a pool without one has no series."""
        self._mirrors = dict(vitals.mirrors) if vitals is not None else {}
        self._now_ms = vitals.now_ms if vitals is not None else 0

    def note_audits(self, vitals: Vitals | None) -> None:
        """Take what the last audit of each whole pool said; a pool without one has no series."""
        for pool, (ok, at_ms) in (vitals.audits if vitals is not None else {}).items():
            self.audit_ok.labels(pool).set(float(ok))
            self.audit_at.labels(pool).set(at_ms / 1000)

    def note_set_aside(self, vitals: Vitals | None) -> None:
        """Take what the leaders have set aside in their pools."""
        for pool, count in (vitals.set_aside if vitals is not None else {}).items():
            self.set_aside.labels(pool).set(count)

    def note_gpus(self, devices: Iterable[tuple[str, Mapping[str, object]]]) -> None:
        """Take what the workers of each pool say of their GPUs; one that nobody has any more is forgotten."""
        told = [(pool, each) for pool, each in devices if "bytesForeign" in each]
        for field, gauge in self.gpus.items():
            gauge.clear()
            for pool, each in told:
                if isinstance(value := each.get(field), int):
                    gauge.labels(pool, str(each.get("uuid"))).set(value)

    def collect(self) -> Iterable[Metric]:
        """Return what was counted; called by the registry."""
        requests: dict[Labels, int] = {
            (method, route, str(status)): count for (method, route, status), count in self._requests.items()
        }
        yield _counter("headrace_http_requests", "Answered requests.", ("method", "route", "status"), requests)
        seconds = HistogramMetricFamily(
            "headrace_http_request_seconds", "From the head of a request to its answer.", labels=("method", "route")
        )
        for labels, durations in self._durations.items():
            seconds.add_metric(labels, durations.buckets(), durations.sum_s)
        yield seconds
        created = ("tenant_class", "model", "priority")
        yield _counter("headrace_jobs_created", "Jobs admitted by this process.", created, self._created)
        yield _counter("headrace_ratelimited", "Submissions refused by a limit.", ("policy",), self._refused)
        append = HistogramMetricFamily(
            "headrace_log_append_seconds", "From the decision to admit to the answer of the store."
        )
        append.add_metric((), self.append_seconds.buckets(), self.append_seconds.sum_s)
        yield append
        yield from _backlog_metrics(self._backlogs)
        yield from delivery_metrics(self._surveys)
        yield from self.streams.collect()
        yield from operator_metrics(self._standings, self._letters)
        yield from mirror_metrics(self._mirrors, self._now_ms)

    def render(self) -> bytes:
        """Return the Prometheus text format."""
        return generate_latest(self.registry)


def _counter(name: str, about: str, labels: Labels, counts: dict[Labels, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, about, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family


def _backlog_metrics(backlogs: Mapping[str, Backlog]) -> Iterable[Metric]:
    oldest = GaugeMetricFamily(
        "headrace_queue_oldest_seconds", "How long the oldest waiting job waits.", labels=("pool",)
    )
    longest = GaugeMetricFamily(
        "headrace_running_longest_seconds", "How long the attempt that runs longest has run.", labels=("pool",)
    )
    jobs = GaugeMetricFamily("headrace_queue_backlog_jobs", "Jobs that could run if there were room.", labels=("pool",))
    work = GaugeMetricFamily("headrace_queue_backlog_seconds", "Device time of those jobs.", labels=("pool",))
    idle = CounterMetricFamily(
        "headrace_idle_slot_seconds",
        "Slot time idle while jobs waited, as one leader saw it.",
        labels=("pool", "reason"),
    )
    for pool, told in backlogs.items():
        oldest.add_metric((pool,), told.oldest_ms / 1000)
        longest.add_metric((pool,), told.longest_ms / 1000)
        jobs.add_metric((pool,), told.jobs)
        work.add_metric((pool,), told.work_ms / 1000)
        for reason, ms in told.idle_ms.items():
            idle.add_metric((pool, reason), ms / 1000)
    yield from (oldest, longest, jobs, work, idle)
