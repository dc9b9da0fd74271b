"""The keeper ends what its owner leaves behind, and only that."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.stack import keeper
from headrace.stack.keeper_link import KeeperLink
from tests.headrace.store_server.processes import alive, kill_9, wait_for, wait_gone


def start_sleeper(*, stubborn: bool = False) -> "subprocess.Popen[bytes]":
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " if stubborn else "import signal; "
    command = [sys.executable, "-c", f"{code}print('up', flush=True); signal.pause()"]
    sleeper = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert sleeper.stdout is not None
    sleeper.stdout.readline()
    return sleeper


@pytest.fixture
def sleepers() -> Iterator[list["subprocess.Popen[bytes]"]]:
    running = [start_sleeper(), start_sleeper()]
    yield running
    for sleeper in running:
        sleeper.kill()
        sleeper.wait(60)
        assert sleeper.stdout is not None
        sleeper.stdout.close()


def test_the_end_of_the_pipe_ends_every_process_that_was_not_taken_back(
    sleepers: "list[subprocess.Popen[bytes]]",
) -> None:
    kept, ended = sleepers
    told = f"+{kept.pid}\n+{ended.pid}\n-{kept.pid}\n"

    subprocess.run(
        [sys.executable, "-S", "-I", keeper.__file__, "30", "/data"], input=told.encode(), check=True, timeout=60
    )

    assert ended.wait(60) == -15
    assert alive(kept.pid)


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace() -> None:
    stubborn = start_sleeper(stubborn=True)

    keeper.end({stubborn.pid}, grace_s=0.1)

    assert stubborn.wait(60) == -9
    assert stubborn.stdout is not None
    stubborn.stdout.close()


def test_a_killed_keeper_is_replaced_by_one_that_knows_the_same_processes(
    sleepers: "list[subprocess.Popen[bytes]]", tmp_path: Path
) -> None:
    link = KeeperLink(tmp_path)
    link.check()
    link.tell(f"+{sleepers[0].pid}")
    first = link.pid
    assert first is not None
    kill_9(first)
    wait_for(lambda: not alive(first), "the end of the keeper")

    link.check()
    assert link.pid != first
    link.close()

    wait_gone(sleepers[0].pid)
    assert alive(sleepers[1].pid)
