"""`headrace up` with real processes: ready line, restarts, and nothing left however it ends."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigError
from contracts.models import load
from contracts.settings import load_settings
from headrace.up import read_wishes, welcome
from tests.headrace.store_server.processes import alive, wait_for, wait_gone
from tests.headrace.up_process import PATIENCE_S, SAMPLES, Up, launch_up, log_of, plain_environment, start_up

SERVICES = ("ingest", "scheduler", "gpu_worker", "notifier")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A stack for tests that harm nothing."""
    up = start_up(tmp_path_factory.mktemp("up") / "state", "--workers", "2")
    yield up
    up.clean_up()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def start(data_dir: Path) -> Iterator[Callable[..., Up]]:
    """Start stacks in `data_dir`; all of them are ended afterwards."""
    running: list[Up] = []

    def start_one(*flags: str, **settings: str) -> Up:
        running.append(start_up(data_dir, *flags, **settings))
        return running[-1]

    yield start_one
    for up in running:
        up.clean_up()


def ask(up: Up, method: str, path: str, key: str = "apiKey", body: dict[str, Any] | None = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {up.ready[key]}", "Content-Type": "application/json"}
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(up.ready["url"] + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read() or b"{}")


def submit(up: Up, model: str = "echo", **inputs: object) -> str:
    body = {"userId": "u", "prompt": "x", "model": model, "input": inputs}
    status, job = ask(up, "POST", "/v1/jobs", body=body)
    assert status == 201, job
    return str(job["id"])


def wait_completed(up: Up, job_id: str) -> None:
    wait_for(lambda: ask(up, "GET", f"/v1/jobs/{job_id}")[1].get("status") == "completed", f"{job_id} to complete")


def test_the_ready_line_holds_what_a_program_needs_and_a_job_then_runs(shared: Up) -> None:
    up, keys = shared, shared.data_dir / "keys.json"

    assert list(up.ready) == ["url", "apiKey", "adminKey", "webhookSecret", "dataDir", "redis", "pids"]
    assert list(up.ready["pids"]) == ["store", "ingest", "scheduler", "gpu_worker", "notifier", "archivist"]
    assert len(up.ready["pids"]["gpu_worker"]) == 2
    assert all(alive(up.pid_of(service)) for service in ("store", *SERVICES))
    assert up.ready["dataDir"] == str(up.data_dir)
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert json.loads(keys.read_text())["apiKey"] == up.ready["apiKey"]
    wait_completed(up, submit(up))


def test_the_two_keys_open_different_doors(shared: Up) -> None:
    assert ask(shared, "GET", "/admin/v1/tenants", "adminKey")[0] == 200
    assert ask(shared, "GET", "/v1/jobs", "adminKey")[0] == 403
    assert ask(shared, "GET", "/admin/v1/tenants", "apiKey")[0] == 403
    tenants = ask(shared, "GET", "/admin/v1/tenants", "adminKey")[1]["data"]
    assert [tenant["id"] for tenant in tenants] == ["t_default"]


def test_the_lines_to_paste_run_a_job_whatever_models_are_served(shared: Up) -> None:
    """A line that names a model which is not served would be refused, and the next would wait for ever."""
    text = welcome(shared.ready["url"], shared.ready["apiKey"], load(SAMPLES).names)
    lines = text.partition("# submit a job\n")[2].partition("\nCtrl-C")[0]

    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert json.loads(done.stdout.splitlines()[-1])["status"] == "completed", done.stderr


def test_faults_of_the_pipelines_file_are_told_once_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[models.a]\nentry = 'gone.py'\n[models.b]\nvram_mb = 1\n")
    up = launch_up(tmp_path / "state", "--pipelines", str(tmp_path / "bad.toml"))

    assert up.process.wait(PATIENCE_S) == 2
    told = log_of(tmp_path / "state")
    assert told.startswith("error: bad.toml: ")
    assert all(told.count(fault) == 1 for fault in ("models.a.entry", "models.b.vram_mb:", "models.b.entry:"))
    assert not (tmp_path / "state").exists()


def test_nobody_else_can_read_what_jobs_left_in_a_directory_that_is_open_to_all(
    start: Callable[..., Up], data_dir: Path
) -> None:
    """A directory that was there before keeps its mode; what is put into it is for this user only."""
    data_dir.mkdir()
    data_dir.chmod(0o755)
    up = start()
    wait_completed(up, submit(up, "artifacts"))
    assert list(data_dir.glob("artifacts/*/job_*/art_*"))

    open_to_others, looked_at = [], 0
    for folder, folders, files in os.walk(data_dir):
        # what lies in a closed folder is closed
        folders[:] = [name for name in folders if stat.S_IMODE((Path(folder) / name).stat().st_mode) & 0o077]
        looked_at += len(files)
        paths = [Path(folder) / name for name in (*folders, *files)]
        open_to_others += [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]

    assert looked_at
    assert open_to_others == []


def test_each_killed_service_comes_back_and_ingest_keeps_its_port(start: Callable[..., Up]) -> None:
    """Field case 128: a part that dies alone is started again."""
    up = start()
    before = {service: up.pid_of(service) for service in SERVICES}

    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    wait_gone(*before.values())

    wait_for(lambda: {process.service for process in up.left()} >= set(SERVICES), "all services again")
    wait_for(lambda: _is_ready(up), "ingest on its old port")
    wait_completed(up, submit(up))


def test_a_killed_store_and_its_killed_supervisor_come_back_with_all_jobs(start: Callable[..., Up]) -> None:
    up = start()
    job_id = submit(up)
    wait_completed(up, job_id)
    supervisor = next(process for process in up.left() if "supervisor.py" in process.command)

    os.kill(up.pid_of("store"), signal.SIGKILL)
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_gone(supervisor.pid)

    wait_for(lambda: ask(up, "GET", f"/v1/jobs/{job_id}")[1].get("status") == "completed", "the store and its jobs")
    wait_completed(up, submit(up))


@pytest.mark.parametrize("to_group", [False, True], ids=["process", "group"])
def test_sigterm_stops_everything_within_fifteen_seconds(start: Callable[..., Up], to_group: bool) -> None:
    up = start(HEADRACE_WORKER__DRAIN_S="5")  # what `up` sets when nobody does
    submit(up, "slow", steps=1000)
    began = time.monotonic()

    (os.killpg if to_group else os.kill)(up.process.pid, signal.SIGTERM)

    assert up.process.wait(PATIENCE_S) == 0
    assert time.monotonic() - began < 15
    assert up.left() == []


def test_kill_9_of_up_leaves_nothing(start: Callable[..., Up]) -> None:
    up = start()
    submit(up, "slow", steps=1000)

    up.process.kill()

    wait_for(lambda: up.left() == [], "the end of all processes")


def test_kill_9_of_up_and_its_keeper_leaves_nothing(start: Callable[..., Up]) -> None:
    up = start()
    keeper = next(process for process in up.left() if "keeper.py" in process.command)

    os.kill(keeper.pid, signal.SIGKILL)
    up.process.kill()

    wait_for(lambda: up.left() == [], "the end of all processes")


def test_the_next_start_has_the_same_keys_and_jobs(start: Callable[..., Up]) -> None:
    first = start()
    job_id = submit(first)
    wait_completed(first, job_id)
    first.process.kill()

    # at once: the next one waits for what is left of the first
    second = start()

    for name in ("apiKey", "adminKey", "webhookSecret"):
        assert second.ready[name] == first.ready[name]
    assert ask(second, "GET", f"/v1/jobs/{job_id}")[1]["status"] == "completed"


def test_a_taken_port_is_exit_code_7_with_a_hint(shared: Up, tmp_path: Path) -> None:
    port = shared.ready["url"].rpartition(":")[2]

    other = launch_up(tmp_path / "other", "--port", port)

    assert other.process.wait(PATIENCE_S) == 7
    assert "--port" in log_of(tmp_path / "other")
    assert other.left() == []


def test_a_second_stack_in_the_same_directory_is_refused(shared: Up) -> None:
    second = launch_up(shared.data_dir)

    assert second.process.wait(PATIENCE_S) == 5
    assert "already" in log_of(shared.data_dir)


def test_all_faults_of_the_configuration_are_told_at_once(tmp_path: Path) -> None:
    up = launch_up(tmp_path / "state", HEADRACE_WORKER__LEASE_S="soon", HEADRACE_NO_SUCH="1")

    assert up.process.wait(PATIENCE_S) == 2
    told = log_of(tmp_path / "state")
    assert "HEADRACE_WORKER__LEASE_S" in told
    assert "HEADRACE_NO_SUCH" in told


@pytest.mark.parametrize("by_flag", [True, False])
def test_a_pipelines_file_that_was_named_and_is_not_there_is_a_fault(by_flag: bool, tmp_path: Path) -> None:
    """Serving the models that ship with us instead would hide the misspelt name."""
    missing = tmp_path / "mine.toml"
    settings = load_settings({} if by_flag else {"HEADRACE_PIPELINES": str(missing)})

    with pytest.raises(ConfigError, match=r"mine\.toml is not there"):
        read_wishes(settings, port=0, data_dir=tmp_path, pipelines=missing if by_flag else None)


def test_a_store_of_ones_own_is_used_and_none_is_started(
    start: Callable[..., Up], store_url: str, data_dir: Path
) -> None:
    up = start(HEADRACE_REDIS__URL=store_url)

    assert up.ready["redis"] == store_url
    assert up.ready["pids"]["store"] is None
    assert not (data_dir / "store").exists()
    wait_completed(up, submit(up))


def test_a_person_gets_three_lines_that_work_when_pasted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace", "up", "--port", "0", "--data-dir", str(tmp_path / "state")]
    up = Up(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=plain_environment()), tmp_path / "state")
    try:
        assert up.process.stdout is not None
        lines = list(iter(up.process.stdout.readline, "Ctrl-C stops it.\n"))
        pasted = "".join(line for line in lines if line.startswith(("JOB=", "until ", "curl ")))
        done = subprocess.run(["bash"], input=pasted, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        assert pasted.count("\n") == 3
        assert '"status":"completed"' in done.stderr
        assert "job_" in done.stdout
        assert up.stop() == 0
    finally:
        up.clean_up()


def _is_ready(up: Up) -> bool:
    try:
        return ask(up, "GET", "/readyz")[0] == 200
    except OSError:
        return False
