"""`headrace doctor` names what would lose jobs."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from contracts.settings import Settings
from headrace.doctor import STORE_STOP_S, _check_files, judge_clock, judge_disk, judge_persistence, judge_version
from headrace.store_server import ensure, release
from tests.headrace.up_process import plain_environment
from tests.headrace.warm import warm
from tests.servers import Server

Rows = dict[str, dict[str, str]]


def run_doctor(data_dir: Path, **settings: str) -> tuple[int, Rows]:
    words = ("doctor", "--data-dir", str(data_dir), "-o", "json")
    done = warm.run(words, data_dir.parent, plain_environment(**settings))
    assert done.out, done.err
    return done.exit_code, {row["check"]: row for row in done.json["data"]}


def test_a_fresh_machine_is_well_and_stays_untouched(tmp_path: Path) -> None:
    exit_code, rows = run_doctor(tmp_path / "absent")

    assert exit_code == 0
    assert set(rows) >= {"store version", "persistence", "eviction policy", "devices", "disk", "clock"}
    assert not (tmp_path / "absent").exists()


def test_beside_a_running_stack_it_answers_at_once_and_leaves_the_store_running(tmp_path: Path) -> None:
    """The wait for the end of a store that it started itself would be 10 s."""
    running = ensure(tmp_path)
    began_s = time.monotonic()

    exit_code, rows = run_doctor(tmp_path)

    assert time.monotonic() - began_s < STORE_STOP_S - 1
    assert (exit_code, rows["persistence"]["verdict"]) == (0, "ok")
    assert ensure(tmp_path).pid == running.pid
    assert release(tmp_path, wait_s=30)


def test_a_store_without_persistence_fails_the_check(store_server: Server, tmp_path: Path) -> None:
    """Field case 121: memory-only Redis behind accepted jobs."""
    exit_code, rows = run_doctor(tmp_path, HEADRACE_REDIS__URL=store_server.url)

    assert exit_code == 1
    assert rows["persistence"]["verdict"] == "failed"
    assert "gone when the store restarts" in rows["persistence"]["detail"]


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_store_that_evicts_fails_the_check(own_server: Server, tmp_path: Path, policy: str) -> None:
    """Field case 124: an eviction policy eats jobs."""
    with redis.Redis.from_url(own_server.url) as client:
        client.config_set("maxmemory-policy", policy)

    exit_code, rows = run_doctor(tmp_path, HEADRACE_REDIS__URL=own_server.url)

    assert exit_code == 1
    assert rows["eviction policy"]["verdict"] == "failed"
    assert rows["persistence"]["verdict"] == "ok"


def test_each_supported_server_is_known_by_its_own_version(any_server: Server, tmp_path: Path) -> None:
    """Field case 132."""
    _, rows = run_doctor(tmp_path, HEADRACE_REDIS__URL=any_server.url)

    assert rows["store version"]["verdict"] == "ok"


def test_a_store_that_does_not_answer_is_one_failed_check(tmp_path: Path) -> None:
    exit_code, rows = run_doctor(tmp_path, HEADRACE_REDIS__URL=f"unix://{tmp_path}/nobody.sock")

    assert exit_code == 1
    assert rows["store"]["verdict"] == "failed"


def test_a_place_for_files_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    well = _check_files(Settings.model_validate({"artifacts": {"url": str(tmp_path / "store")}}))
    broken = _check_files(Settings.model_validate({"artifacts": {"url": str(tmp_path / "file")}}))
    unknown = _check_files(Settings.model_validate({"artifacts": {"url": "ftp://user:secret@host/x"}}))

    assert [check.verdict for check in (*well, *broken, *unknown)] == ["ok", "failed", "failed"]
    assert "secret" not in str(unknown)
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []
    assert _check_files(Settings()) == []


def test_devices_that_cannot_be_read_fail_the_check(tmp_path: Path) -> None:
    exit_code, rows = run_doctor(tmp_path, HEADRACE_WORKER__DEVICES="gpu:everything")

    assert exit_code == 1
    assert rows["devices"]["verdict"] == "failed"


def test_old_servers_slow_disks_wrong_clocks_and_full_disks_are_named() -> None:
    assert judge_version({"redis_version": "6.2.14"}).verdict == "failed"
    assert judge_version({"redis_version": "7.2.4", "valkey_version": "7.1.0"}).verdict == "failed"
    assert judge_version({"redis_version": "7.2.4", "valkey_version": "9.1.2"}).detail == "valkey 9.1.2"
    assert judge_persistence({"aof_enabled": "1", "aof_delayed_fsync": "3"}).verdict == "warning"
    assert judge_persistence({"aof_enabled": "1", "aof_last_write_status": "err"}).verdict == "failed"
    assert judge_clock(-2.5).verdict == "warning"
    assert judge_disk(50 * 1024**2, Path("/")).verdict == "failed"
    assert judge_disk(1024**3, Path("/")).verdict == "warning"


def test_a_store_that_cannot_be_named_is_a_usage_error_without_a_trace(tmp_path: Path) -> None:
    environ = os.environ | {"HEADRACE_REDIS__URL": "htp://:secret@host"}
    command = [sys.executable, "-m", "headrace", "doctor", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=100)

    assert done.returncode == 2
    assert done.stderr.startswith("error: HEADRACE_REDIS__URL")
    assert "secret" not in done.stderr
