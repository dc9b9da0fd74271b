"""The load generator: keep-alive connections that POST one body, as a process of its own.

`python -m benchmarks.http_load '<JSON of Plan>'` prints the JSON of `Outcome`. With a rate the requests leave on
schedule whether or not answers came (an open loop: a slow server cannot slow the load down and so hide its waits);
without one each connection sends its next request as soon as it has the answer. Bounded by time and connections.
"""

import asyncio
import json
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import cast

import uvloop

from benchmarks.figures import quantile
from benchmarks.processes import output_of

ANSWER_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send, where to and for how long. `rate` 0: as fast as the answers come."""

    host: str
    port: int
    path: str
    body: str
    key: str = ""
    connections: int = 32
    seconds: float = 2.0
    rate: float = 0.0

    def request(self) -> bytes:
        """Return the bytes of one request."""
        body = self.body.encode()
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came back. Latencies run from the moment the request was due to the last byte of its answer."""

    answered: int
    refused: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_s: float  # of the generator: a generator near 1 s per second measures itself

    @property
    def rate(self) -> float:
        """Accepted requests per second."""
        return self.answered / self.seconds


@dataclass(slots=True)
class Tally:
    """The answers so far, and the connections that wait for work."""

    end_s: float
    all_sent: bool = False
    idle: "list[Connection]" = field(default_factory=list)
    overdue: deque[float] = field(default_factory=deque)
    latencies_s: list[float] = field(default_factory=list)
    refused: int = 0
    under_way: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def answer(self, connection: "Connection", status: int, due_s: float) -> None:
        """Count an answer and give the connection its next request, if there is one."""
        now_s = time.perf_counter()
        self.under_way -= 1
        if 200 <= status < 300:
            self.latencies_s.append(now_s - due_s)
        else:
            self.refused += 1
        self.idle.append(connection)
        self.next(now_s)
        self.check()

    def next(self, now_s: float) -> None:
        """Give the connection that fell idle what is overdue."""
        if self.overdue:
            self.idle.pop().send(self.overdue.popleft())

    def check(self) -> None:
        """Notice the end."""
        if self.all_sent and not self.under_way:
            self.done.set()


class ClosedTally(Tally):
    """Every answer is followed by the next request until the time is over."""

    def next(self, now_s: float) -> None:
        """Send again."""
        self.all_sent = now_s >= self.end_s
        if not self.all_sent:
            self.idle.pop().send(now_s)


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request under way."""

    def __init__(self, tally: Tally, request: bytes) -> None:
        self._tally, self._request = tally, request
        self._buffer = b""
        self._due_s = 0.0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._tally.done.set()  # the server closed on us: the count of answers says so

    def send(self, due_s: float) -> None:
        """Send the request that was due at `due_s`."""
        self._due_s = due_s
        self._tally.under_way += 1
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        status = whole_answer(self._buffer)
        if status:
            self._buffer = b""
            self._tally.answer(self, status, self._due_s)


def whole_answer(buffer: bytes) -> int:
    """Return the status when the buffer holds one whole answer, 0 until then.

    >>> whole_answer(b"HTTP/1.1 201 Created\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
    201
    """
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return 0
    head = buffer[:end].lower()
    at = head.find(b"\r\ncontent-length:")
    length = int(head[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
    return int(buffer[9:12]) if len(buffer) >= end + 4 + length else 0


async def run(plan: Plan) -> Outcome:
    """Carry the plan out."""
    loop = asyncio.get_running_loop()
    request = plan.request()
    tally = (Tally if plan.rate else ClosedTally)(end_s=0.0)
    for _ in range(plan.connections):
        _, connection = await loop.create_connection(lambda: Connection(tally, request), plan.host, plan.port)
        tally.idle.append(connection)
    begun_s, cpu_begun_s = time.perf_counter(), time.process_time()
    tally.end_s = begun_s + plan.seconds
    if plan.rate:
        await _send_on_schedule(plan, tally, begun_s)
    else:
        while tally.idle:
            tally.idle.pop().send(time.perf_counter())
    await asyncio.wait_for(tally.done.wait(), plan.seconds + ANSWER_LIMIT_S)
    seconds = time.perf_counter() - begun_s
    latencies = tally.latencies_s or [float("nan")]
    return Outcome(
        answered=len(tally.latencies_s),
        refused=tally.refused,
        seconds=seconds,
        p50_ms=quantile(latencies, 0.5) * 1000,
        p99_ms=quantile(latencies, 0.99) * 1000,
        cpu_s=time.process_time() - cpu_begun_s,
    )


async def _send_on_schedule(plan: Plan, tally: Tally, begun_s: float) -> None:
    for number in range(int(plan.rate * plan.seconds)):
        due_s = begun_s + number / plan.rate
        if (wait_s := due_s - time.perf_counter()) > 0:
            await asyncio.sleep(wait_s)
        now_s = time.perf_counter()
        # the timer's own lateness is the generator's, the wait for a free connection is the server's
        if tally.idle:
            tally.idle.pop().send(now_s)
        else:
            tally.overdue.append(now_s)
    tally.all_sent = True
    tally.check()


def generate(plan: Plan) -> Outcome:
    """Carry the plan out in a process of its own, so that the load does not share a core with what it measures."""
    return Outcome(**output_of("-m", "benchmarks.http_load", json.dumps(asdict(plan))))


if __name__ == "__main__":
    print(json.dumps(asdict(uvloop.run(run(Plan(**json.loads(sys.argv[1])))))))
