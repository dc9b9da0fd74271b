"""What Headrace costs: `python -m benchmarks` measures, each figure beside a raw baseline in the same run.

Machines are shared and noisy, so product and baseline take turns in short rounds and the ratio is what counts.
Figures are cut off against the product, never rounded in its favour. Nothing here is a test: no figure fails a build.

    figures.py     pure: samples to quantiles, rounds to ratios, rows of the table
    report.py      pure: rows to Markdown between the markers of README.md
    processes.py   start a process, wait until it is ready, read its CPU time, end it
    rig.py         a store of its own, an ingest alone, a whole stack
    http_load.py   the load generator, a process of its own
    bare_*.py      the baselines
    <the rest>     one benchmark each, with `measure() -> list[Row]`
"""
