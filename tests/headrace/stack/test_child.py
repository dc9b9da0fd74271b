"""Real processes under `Child`: restarted with backoff, stopped within a limit, and never alive without us."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from headrace.stack.child import Child, ServiceSpec, next_delay_s
from headrace.stack.logs import ServiceLog
from tests.headrace.store_server.processes import wait_gone

PATIENCE_S = 60.0
REPOSITORY = Path(__file__).parents[3]

OBEDIENT = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    "print('up', flush=True)\n"
    "while True: signal.pause()"
)
STUBBORN = (
    "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "helper = subprocess.Popen(['sleep', '600']); print('up', helper.pid, flush=True); signal.pause()"
)

MakeChild = Callable[[str], Child]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[MakeChild]:
    made: list[Child] = []

    def make_child(code: str) -> Child:
        spec = ServiceSpec("test", "test", (sys.executable, "-c", code), dict(os.environ))
        child = Child(spec, ServiceLog.open(tmp_path / "logs" / "test.log"), told=lambda _: None, say=lambda _: None)
        made.append(child)
        return child

    yield make_child
    for child in made:
        child.kill()
        await child.wait_stopped(PATIENCE_S)


async def until_line(child: Child) -> str:
    async with asyncio.timeout(PATIENCE_S):
        while not (lines := child.log.read_new()):  # noqa: ASYNC110 - a file tells nobody that it grew
            await asyncio.sleep(0.01)
    return lines[-1]


async def test_a_process_that_dies_is_started_again(make: MakeChild) -> None:
    """Field case 128: a service that dies alone comes back."""
    child = make(OBEDIENT)
    child.start()
    await until_line(child)
    first = child.pid
    assert first is not None

    os.kill(first, signal.SIGKILL)

    await until_line(child)
    assert child.pid not in (None, first)
    assert child.last_exit == -signal.SIGKILL


async def test_asking_to_stop_ends_the_process_for_good(make: MakeChild) -> None:
    child = make(OBEDIENT)
    child.start()
    await until_line(child)

    child.ask_to_stop()
    await child.wait_stopped(PATIENCE_S)

    assert child.pid is None
    assert child.last_exit == 0


async def test_a_process_that_ignores_sigterm_is_killed_with_its_whole_group(make: MakeChild) -> None:
    child = make(STUBBORN)
    child.start()
    helper_pid = int((await until_line(child)).split()[1])
    pid = child.pid
    assert pid is not None

    child.ask_to_stop()
    await child.wait_stopped(0.1)

    wait_gone(pid, helper_pid)


async def test_asking_to_stop_while_it_waits_to_restart_starts_nothing(make: MakeChild) -> None:
    child = make("print('up', flush=True)")
    child.start()
    await until_line(child)

    child.ask_to_stop()
    await child.wait_stopped(PATIENCE_S)

    assert child.pid is None


async def test_a_process_that_the_system_would_not_start_is_tried_again(make: MakeChild) -> None:
    child = make(OBEDIENT)
    child.log.path.mkdir()  # stands for a disk or a table of descriptors that is full for a moment
    refused = asyncio.Event()
    child.say = lambda _: refused.set()
    child.start()
    await asyncio.wait_for(refused.wait(), PATIENCE_S)

    child.log.path.rmdir()

    assert await until_line(child) == "up"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux signals the death of a parent")
def test_the_process_gets_sigterm_when_its_owner_is_killed(tmp_path: Path) -> None:
    code = (
        "import asyncio, os, pathlib, sys\n"
        "from headrace.stack.child import Child, ServiceSpec\n"
        "from headrace.stack.logs import ServiceLog\n"
        "async def main():\n"
        "    log = ServiceLog.open(pathlib.Path(sys.argv[1]))\n"
        "    spec = ServiceSpec('test', 'test', (sys.executable, '-c', sys.argv[2]), dict(os.environ))\n"
        "    child = Child(spec, log, told=lambda _: None, say=lambda _: None)\n"
        "    child.start()\n"
        "    while not log.read_new(): await asyncio.sleep(0.01)\n"
        "    print(child.pid, flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "test.log"), OBEDIENT]
    owner = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())

    owner.kill()
    owner.wait(PATIENCE_S)

    wait_gone(pid)


def test_the_wait_doubles_up_to_its_limit_and_starts_over_after_a_long_life() -> None:
    waits, last_s = [], 0.0
    for _ in range(8):
        last_s = next_delay_s(last_s, lived_s=0.1)
        waits.append(last_s)

    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert next_delay_s(5.0, lived_s=2.0) == 0.2
