"""What is counted of live streams in one process: who listens, who was too slow, what could not be told, how late.

Promises: labels are kinds of streams (`job`, `tenant`, `user`, `pool`, `workers`, `socket`, `replay`), never names.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from services.ingest.durations import Durations
from services.ingest.live.messages import Message, end

KINDS = ("job", "tenant", "socket", "replay")


class StreamFigures:
    """One process."""

    def __init__(self) -> None:
        self._clients: Counter[str] = Counter()
        self._slow: Counter[str] = Counter()
        self._gaps: Counter[str] = Counter()
        self._resumes: Counter[str] = Counter()
        self.lag = Durations()
        self.readers: dict[str, Callable[[], float]] = {}  # of the log of each pool: how long ago it was read

    @contextmanager
    def client(self, kind: str) -> Iterator[None]:
        """Count a connection while it is open."""
        self._clients[kind] += 1
        try:
            yield
        finally:
            self._clients[kind] -= 1

    def begun(self, kind: str, *, is_resumed: bool) -> None:
        """Count a stream that goes on behind a place."""
        self._resumes[kind] += is_resumed

    def told(self, kind: str, message: Message, now_ms: int) -> None:
        """Count what was written to a socket."""
        if message.at_ms:
            # The store's clock and ours may differ by more than it took.
            self.lag.observe(max(0, now_ms - message.at_ms) / 1000)
        elif message.kind == "gap":
            self._gaps[kind] += 1
        elif message == end("slow_consumer"):
            self._slow[kind] += 1

    def collect(self) -> Iterable[Metric]:
        """Return what was counted."""
        clients = GaugeMetricFamily("headrace_stream_clients", "Open streams and sockets.", labels=("kind",))
        for kind in KINDS:
            clients.add_metric((kind,), self._clients[kind])
        yield clients
        for name, about, counts in (
            ("slow_consumers", "Streams ended because their reader did not keep up.", self._slow),
            ("gap", "Gaps that readers were told of.", self._gaps),
            ("resumes", "Streams that went on behind a place.", self._resumes),
        ):
            family = CounterMetricFamily(f"headrace_stream_{name}", about, labels=("kind",))
            for kind, count in counts.items():
                family.add_metric((kind,), count)
            yield family
        age = GaugeMetricFamily(
            "headrace_stream_reader_age_seconds", "How long ago the log was read, while anybody listens.",
            labels=("pool",),
        )  # fmt: skip
        for pool, age_s in self.readers.items():
            age.add_metric((pool,), age_s())
        yield age
        lag = HistogramMetricFamily("headrace_stream_lag_seconds", "From the append of an event to its socket.")
        lag.add_metric((), self.lag.buckets(), self.lag.sum_s)
        yield lag
