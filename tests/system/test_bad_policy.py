"""A policy that cannot be stops each process at its start, with one line for each thing that is wrong."""

import asyncio
import os
import sys

import pytest

START_S = 20
POLICY = "HEADRACE_SCHEDULER__POLICY__"


@pytest.mark.parametrize("service", ["scheduler", "ingest", "gpu_worker", "notifier"])
async def test_a_bad_policy_stops_the_start_with_a_line_for_each_fault(service: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    environment |= {
        "HEADRACE_REDIS__URL": "unix:///nowhere",
        POLICY + "TIER_WEIGHTS": "free=-1,gold=2",
        POLICY + "TIER_FLOORS": "enterprise=0.7,free=0.2",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"services.{service}", env=environment, stderr=asyncio.subprocess.PIPE
    )

    _, told = await asyncio.wait_for(process.communicate(), START_S)

    assert process.returncode == 2
    lines = told.decode().splitlines()
    assert [line.partition(":")[0].removeprefix(POLICY) for line in lines] == [
        "TIER_WEIGHTS__FREE", "TIER_WEIGHTS__GOLD", "TIER_FLOORS",
    ]  # fmt: skip
    for line, words in zip(
        lines, ("greater than or equal to 0.001", "'enterprise'", "0.9; they may take 0.8"), strict=True
    ):
        assert words in line
