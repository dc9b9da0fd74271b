"""`python -m benchmarks [NAME ...]`: measure, print the table, and put it between the markers of README.md.

With names only those are measured and README.md is left alone, as the table is always of one run.
"""

import argparse
import importlib
import sys
import time
from datetime import UTC, datetime

from benchmarks import machine, report
from benchmarks.figures import Row
from benchmarks.processes import ROOT

NAMES = (
    "post_rate",
    "first_run",
    "slot_gap",
    "child_cost",
    "pending_memory",
    "throughput",
    "call_cost",
    "batches",
    "planning",
    "deliveries",
    "delivery_kills",
    "delivery_restart",
    "archiving",
    "live_streams",
)
COMMAND = "make bench"


def main() -> None:
    """Measure one after another: two benchmarks at once would measure each other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    chosen = parser.parse_args().names
    if unknown := sorted(set(chosen) - set(NAMES)):
        parser.error(f"there is no {', '.join(unknown)}; choose from {', '.join(NAMES)}")
    rows = [row for name in chosen or NAMES for row in _measure(name)]
    print(report.table(rows))
    if not chosen:
        readme = ROOT / "README.md"
        date = datetime.now(UTC).strftime("%Y-%m-%d")
        new = report.section(rows, machine.describe(), date, COMMAND)
        readme.write_text(report.splice(readme.read_text(), new))


def _measure(name: str) -> list[Row]:
    begun_s = time.monotonic()
    rows: list[Row] = importlib.import_module(f"benchmarks.{name}").measure()
    print(f"{name}: {time.monotonic() - begun_s:.0f} s", file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    main()
