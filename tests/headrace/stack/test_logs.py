"""Logs are bounded and hold nobody up."""

import io
import os
import threading
from pathlib import Path

from headrace.stack import logs
from headrace.stack.logs import ServiceLog, StackLog


def write(log: ServiceLog, text: str) -> None:
    log_fd = log.open_for_writing()
    os.write(log_fd, text.encode())
    os.close(log_fd)


def test_only_whole_new_lines_are_read(tmp_path: Path) -> None:
    log = ServiceLog.open(tmp_path / "a.log")
    write(log, "one\ntw")

    assert log.read_new() == ["one"]
    write(log, "o\n")
    assert log.read_new() == ["two"]
    assert log.read_new() == []


def test_an_earlier_runs_lines_are_not_read_again(tmp_path: Path) -> None:
    write(ServiceLog.open(tmp_path / "a.log"), "old\n")

    assert ServiceLog.open(tmp_path / "a.log").read_new() == []


def test_a_long_log_is_set_aside_while_its_writer_goes_on(tmp_path: Path) -> None:
    log = ServiceLog.open(tmp_path / "a.log")
    writer_fd = log.open_for_writing()
    line = b"x" * 999 + b"\n"
    for _ in range(logs.LIMIT_BYTES // 1000 + 1):
        os.write(writer_fd, line)

    while log.read_new():
        pass
    os.write(writer_fd, b"after\n")
    os.close(writer_fd)

    assert log.read_new() == ["after"]
    assert (tmp_path / "a.log").stat().st_size == len("after\n")
    assert (tmp_path / "a.log.1").stat().st_size > logs.LIMIT_BYTES


def test_services_and_remarks_are_echoed_with_their_names(tmp_path: Path) -> None:
    echo = io.StringIO()
    stack_log = StackLog(tmp_path, echo)
    service = stack_log.of_service("ingest")

    write(service, "hello\n")
    stack_log.echo_services()
    stack_log.say("ready")
    stack_log.close()

    assert echo.getvalue().splitlines() == ["[ingest] hello", "headrace: ready"]
    assert (tmp_path / "up.log").read_text().endswith(" ready\n")


def test_a_standard_error_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    stack_log = StackLog(tmp_path, os.fdopen(write_fd, "w"))

    def say_much() -> None:
        for _ in range(5000):
            stack_log.say("x" * 100)

    talker = threading.Thread(target=say_much)
    talker.start()
    talker.join(60)

    assert not talker.is_alive()
    os.close(read_fd)
