"""POST rate and p99: one ingest process against a bare aiohttp handler on the same store.

Two loads: as fast as the answers come (rate), and a fixed schedule below both limits (latency). Neither side has a
scheduler or workers beside it, so the one core that is measured is the one that serves HTTP.
"""

from dataclasses import dataclass, replace

from benchmarks.figures import Row, high, low, ratios, spread
from benchmarks.http_load import Outcome, Plan, generate
from benchmarks.payload import PAYLOAD_BYTES, payload
from benchmarks.processes import cpu_s, running
from benchmarks.rig import ingest_alone, own_store

ROUNDS = 5
CONNECTIONS = 32
SECONDS = 2.0
WARM_UP_S = 0.5
SCHEDULED_RATE = 400.0
RATE_BAR = 0.5


@dataclass(frozen=True, slots=True)
class Side:
    """What is loaded, and the process whose CPU time counts."""

    plan: Plan
    pid: int


@dataclass(frozen=True, slots=True)
class Round:
    """One round of one side."""

    outcome: Outcome
    cpu_us: float  # of the server process, for each request


def measure() -> list[Row]:
    """Interleave rounds of both sides; the first of each is a warm-up."""
    with (
        own_store() as (url, data_dir),
        ingest_alone(url, data_dir) as ingest,
        running("-m", "benchmarks.bare_http", url) as (bare, bare_pid),
    ):
        plan = Plan("127.0.0.1", ingest.port, "/v1/jobs", payload().decode(), ingest.key, CONNECTIONS)
        ours = Side(plan, ingest.pids["ingest"][0])
        theirs = Side(replace(plan, port=bare["port"], key=""), bare_pid)
        full = _rounds(ours, theirs, 0.0)
        scheduled = _rounds(ours, theirs, SCHEDULED_RATE)
    return [_rate_row(*full), _cpu_row(*full), _latency_row(*scheduled)]


def _rounds(ours: Side, theirs: Side, rate: float) -> tuple[list[Round], list[Round]]:
    kept: tuple[list[Round], list[Round]] = ([], [])
    for number in range(ROUNDS + 1):
        for side, rounds in zip((ours, theirs), kept, strict=True):
            one = _round(side, SECONDS if number else WARM_UP_S, rate)
            if number:
                rounds.append(one)
    return kept


def _round(side: Side, seconds: float, rate: float) -> Round:
    before_s = cpu_s(side.pid) or 0.0
    outcome = generate(replace(side.plan, seconds=seconds, rate=rate))
    if outcome.refused or not outcome.answered:
        raise AssertionError(f"{outcome.refused} of {outcome.answered + outcome.refused} were refused")
    return Round(outcome, ((cpu_s(side.pid) or 0.0) - before_s) / outcome.answered * 1e6)


def _rate_row(ours: list[Round], theirs: list[Round]) -> Row:
    mine, bare = [one.outcome.rate for one in ours], [one.outcome.rate for one in theirs]
    ratio = ratios(mine, bare)
    return Row(
        f"POST, {PAYLOAD_BYTES} bytes, one ingest process, {CONNECTIONS} connections, as fast as it goes",
        high(spread(mine), "/s"),
        high(spread(bare), "/s") + " bare aiohttp + pydantic + XADD",
        high(ratio, digits=2),
        f"at least {RATE_BAR}",
        ratio.mid >= RATE_BAR,
    )


def _cpu_row(ours: list[Round], theirs: list[Round]) -> Row:
    mine, bare = [one.cpu_us for one in ours], [one.cpu_us for one in theirs]
    what = "the same, CPU time of the server process for a request"
    return Row(what, low(spread(mine), " us", 0), low(spread(bare), " us", 0) + " the same", low(ratios(mine, bare)))


def _latency_row(ours: list[Round], theirs: list[Round]) -> Row:
    mine, bare = [one.outcome.p99_ms for one in ours], [one.outcome.p99_ms for one in theirs]
    what = f"POST p99 at {SCHEDULED_RATE:.0f}/s on a schedule"
    return Row(what, low(spread(mine), " ms"), low(spread(bare), " ms") + " the same", low(ratios(mine, bare)))
