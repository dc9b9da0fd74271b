"""Blocking calls in threads of their own: bounded, and nobody waits for one that hangs."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from contracts.threads import Threads

ROOT = Path(__file__).parents[2]
HANGS = """
import asyncio, time
from contracts.threads import Threads

async def main():
    try:
        async with asyncio.timeout(0.05):
            await Threads(1, "test").run(time.sleep, 60)
    except TimeoutError:
        print("gave up", flush=True)

asyncio.run(main())
"""


async def test_results_and_errors_come_back() -> None:
    threads = Threads(2, "test")
    assert await threads.run(divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        await threads.run(divmod, 7, 0)


async def test_no_more_calls_than_allowed_run_at_once() -> None:
    threads, running, most, lock = Threads(3, "test"), 0, 0, threading.Lock()

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    await asyncio.gather(*(threads.run(call) for _ in range(12)))
    assert most == 3


def test_a_call_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    begun = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", HANGS], cwd=ROOT, capture_output=True, text=True, timeout=50, check=True
    )
    assert ended.stdout == "gave up\n"
    assert time.monotonic() - begun < 30
