"""POST rate and p99: one ingest process against a bare aiohttp handler on the same store.

Two loads: as fast as the answers come (rate), and a fixed schedule below both limits (latency). Neither side has a
scheduler or workers beside it, so the one core that is measured is the one that serves HTTP.
"""

from dataclasses import replace

from benchmarks.figures import Row, high, low, ratios, spread
from benchmarks.http_load import Outcome, Plan, generate
from benchmarks.payload import PAYLOAD_BYTES, payload
from benchmarks.processes import running
from benchmarks.rig import ingest_alone, own_store

ROUNDS = 5
CONNECTIONS = 32
SECONDS = 2.0
WARM_UP_S = 0.5
SCHEDULED_RATE = 400.0
RATE_BAR = 0.5


def measure() -> list[Row]:
    """Interleave rounds of both sides; the first of each is a warm-up."""
    with (
        own_store() as (url, data_dir),
        ingest_alone(url, data_dir) as ingest,
        running("-m", "benchmarks.bare_http", url) as (bare, _),
    ):
        ours = Plan("127.0.0.1", ingest.port, "/v1/jobs", payload().decode(), ingest.key, CONNECTIONS)
        theirs = replace(ours, port=bare["port"], key="")
        full = _rounds(ours, theirs, 0.0)
        scheduled = _rounds(ours, theirs, SCHEDULED_RATE)
    return [_rate_row(*full), _latency_row(*scheduled)]


def _rounds(ours: Plan, theirs: Plan, rate: float) -> tuple[list[Outcome], list[Outcome]]:
    outcomes: tuple[list[Outcome], list[Outcome]] = ([], [])
    for number in range(ROUNDS + 1):
        for plan, kept in zip((ours, theirs), outcomes, strict=True):
            wanted = replace(plan, seconds=SECONDS if number else WARM_UP_S, rate=rate)
            outcome = generate(wanted)
            if outcome.refused or not outcome.answered:
                raise AssertionError(f"{outcome.refused} of {outcome.answered + outcome.refused} were refused")
            if number:
                kept.append(outcome)
    return outcomes


def _rate_row(ours: list[Outcome], theirs: list[Outcome]) -> Row:
    mine, bare = [o.rate for o in ours], [o.rate for o in theirs]
    ratio = ratios(mine, bare)
    what = f"POST, {PAYLOAD_BYTES} bytes, one ingest process, {CONNECTIONS} connections, as fast as it goes"
    return Row(
        what, high(spread(mine), "/s"), high(spread(bare), "/s") + " bare aiohttp + pydantic + XADD",
        high(ratio, digits=2), f"at least {RATE_BAR}", ratio.mid >= RATE_BAR,
    )  # fmt: skip


def _latency_row(ours: list[Outcome], theirs: list[Outcome]) -> Row:
    mine, bare = [o.p99_ms for o in ours], [o.p99_ms for o in theirs]
    what = f"POST p99 at {SCHEDULED_RATE:.0f}/s on a schedule"
    return Row(what, low(spread(mine), " ms"), low(spread(bare), " ms") + " the same", low(ratios(mine, bare)))
