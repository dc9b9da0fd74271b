"""Pictures of the demo model per second as it is shipped, up to 8 jobs in one pass, beside one job at a time.

Both are the same files on the same slot, and take turns; a job before each round loads the model. Who is drawn
together is up to the scheduler: the first jobs of a round find an idle slot and share nothing.
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Row, cut_down, high, low, ratios, spread
from benchmarks.http_load import Plan
from benchmarks.payload import payload
from benchmarks.processes import ROOT
from benchmarks.rig import Target, stack
from benchmarks.stamps import finished
from benchmarks.submit import Submitter
from contracts.positions import entry_ms
from contracts.store import Store
from contracts.store.jobs import History

ROUNDS = 3
JOBS = 24
TOGETHER, SINGLY = "scenes", "scenes_singly"


@dataclass(frozen=True, slots=True)
class Round:
    """What became of jobs that were submitted at once."""

    per_s: float
    mean_s: float  # from the first submission to a job's completion
    pass_size: float


def measure() -> list[Row]:
    """Interleave rounds of both."""
    with _pipelines() as pipelines, stack("cpu*1", pipelines) as target:
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours.append(product_round(target, TOGETHER))
            theirs.append(product_round(target, SINGLY))
    size = cut_down(spread([each.pass_size for each in ours]).mid, 1)
    rates = [each.per_s for each in ours], [each.per_s for each in theirs]
    means = [each.mean_s for each in ours], [each.mean_s for each in theirs]
    return [
        Row(
            f"pictures of the demo model per second, {JOBS} jobs at once, one CPU slot, max_batch 8 ({size} in a pass)",
            high(spread(rates[0]), "/s", 2), high(spread(rates[1]), "/s", 2) + " max_batch 1",
            high(ratios(*rates), digits=2),
        ),
        Row(
            "the same, first POST to a job's end, mean",
            low(spread(means[0]), " s"), low(spread(means[1]), " s") + " max_batch 1", low(ratios(*means)),
        ),
    ]  # fmt: skip


def product_round(target: Target, model: str) -> Round:
    """Submit the jobs, wait for all of them and read their histories."""
    with Submitter(Plan("127.0.0.1", target.port, "/v1/jobs", payload(model).decode(), target.key)) as submitter:
        asyncio.run(_histories(target.store_url, [submitter.submit()[0]]))
        jobs = [submitter.submit()[0] for _ in range(JOBS)]
    return _read(asyncio.run(_histories(target.store_url, jobs)))


@contextlib.contextmanager
def _pipelines() -> Iterator[Path]:
    """The shipped models, and the demo model once more without batches."""
    with tempfile.TemporaryDirectory(prefix="hr-bench-") as folder:
        shutil.copytree(ROOT / "pipelines", folder, dirs_exist_ok=True)
        file = Path(folder) / "pipelines.toml"
        paths = 'entry = "scenes/pipeline.py"\ninputs = "scenes/inputs.schema.json"'
        file.write_text(f'{file.read_text()}\n[models.{SINGLY}]\n{paths}\npools = ["default"]\nvram_mib = 200\n')
        yield file


async def _histories(url: str, jobs: list[str]) -> list[History]:
    store = Store(url)
    try:
        return [await finished(store, job_id) for job_id in jobs]
    finally:
        await store.aclose()


def _read(histories: list[History]) -> Round:
    begun_ms = min(entry_ms(history.entries[0].position) for history in histories)
    took_s = [(_at_ms(history, "job.completed") - begun_ms) / 1000 for history in histories]
    started = [next(e for e in history.entries if e.type == "job.started").raw_data() for history in histories]
    passes = {data.get("batch") or data["offerId"] for data in started}
    return Round(len(histories) / max(took_s), sum(took_s) / len(took_s), len(histories) / len(passes))


def _at_ms(history: History, event_type: str) -> int:
    return entry_ms(next(entry.position for entry in history.entries if entry.type == event_type))
