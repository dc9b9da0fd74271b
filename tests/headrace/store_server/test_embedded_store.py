"""The embedded store as its users see it: one server, whatever dies, and none when nobody is left."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import ConnectionError as RedisConnectionError
from redis import Redis

from contracts.errors import ConfigError
from headrace.store_server import ensure, find_server, locks, release, supervisor
from headrace.store_server.home import open_home
from tests.headrace.store_server.processes import (
    User,
    alive,
    kill_9,
    start_user,
    supervisors,
    wait_for,
    wait_gone,
)

StartUser = Callable[..., User]


def test_twenty_processes_that_race_to_start_get_one_server(data_dir: Path, server: str, user: StartUser) -> None:
    racers = [user(server) for _ in range(20)]

    answers = {(racer.hear().url, racer.pid) for racer in racers}

    assert len(answers) == 1
    assert len(supervisors(data_dir)) == 1


def test_a_killed_server_comes_back_with_its_data_while_users_remain(
    data_dir: Path, server: str, user: StartUser
) -> None:
    """Field case 121: what was acknowledged is there after kill -9 of the server."""
    holder = user(server).hear()
    client = Redis.from_url(holder.url)
    for number in range(1000):
        client.xadd("log", {"n": number})

    kill_9(holder.pid)
    wait_gone(holder.pid)

    again = holder.ensure_again()
    assert again.pid != 0
    assert alive(again.pid)
    assert client.xlen("log") == 1000


def test_users_need_not_ask_for_a_killed_server_to_come_back(user: StartUser) -> None:
    holder = user().hear()
    client = Redis.from_url(holder.url)

    kill_9(holder.pid)

    wait_for(lambda: _answers(client), "the supervisor's next server")


def test_the_server_stops_when_its_last_user_was_killed(data_dir: Path, server: str, user: StartUser) -> None:
    first, second = user(server).hear(), user(server).hear()
    Redis.from_url(first.url).set("kept", "yes")

    first.kill()
    assert alive(second.pid)
    second.kill()

    wait_gone(second.pid, *supervisors(data_dir))
    assert Redis.from_url(user(server).hear().url).get("kept") == b"yes"


def test_kill_9_of_the_supervisor_and_then_of_the_last_user_leaves_nothing(
    data_dir: Path, server: str, user: StartUser
) -> None:
    holder = user(server).hear()
    supervisor_pid = supervisors(data_dir)[0]

    kill_9(supervisor_pid)
    holder.kill()

    wait_gone(holder.pid)
    wait_for(lambda: supervisors(data_dir) == [], "the end of the supervisor")


def test_users_get_a_new_supervisor_when_theirs_was_killed(data_dir: Path, server: str, user: StartUser) -> None:
    holder, other = user(server).hear(), user(server).hear()
    Redis.from_url(holder.url).set("kept", "yes")
    first_supervisor, first_server = supervisors(data_dir)[0], holder.pid

    kill_9(first_supervisor)
    wait_gone(first_supervisor)

    assert other.ensure_again().pid == holder.ensure_again().pid
    assert holder.pid != first_server
    assert len(supervisors(data_dir)) == 1
    assert Redis.from_url(holder.url).get("kept") == b"yes"
    kill_9(holder.pid)  # the new supervisor does its work
    wait_for(lambda: _answers(Redis.from_url(holder.url)), "the new supervisor's next server")


def test_a_user_killed_while_it_starts_the_server_leaves_nothing(data_dir: Path, valkey: str) -> None:
    starter = start_user(data_dir, valkey)
    wait_for(lambda: supervisors(data_dir) != [], "the supervisor")

    starter.kill()

    wait_for(lambda: supervisors(data_dir) == [], "the end of the supervisor")
    assert release(data_dir, wait_s=30)


def test_a_server_without_a_supervisor_is_replaced_by_a_supervised_one(data_dir: Path, valkey: str) -> None:
    """Where the kernel sends no parent-death signal a server can lose its supervisor; users repair that."""
    home = open_home(data_dir)
    lock_fd = locks.take_exclusive(home.server_lock)
    assert lock_fd is not None
    launch = supervisor.Launch(str(home.directory), str(home.socket), valkey, "everysec", lock_fd)
    orphan = subprocess.Popen(
        supervisor.command(launch), pass_fds=[lock_fd], stdout=subprocess.DEVNULL, cwd=home.directory
    )
    os.close(lock_fd)

    store = ensure(data_dir, server=valkey, timeout_s=60)

    assert orphan.wait(60) == 0
    assert store.pid != orphan.pid
    assert len(supervisors(data_dir)) == 1


def test_sigterm_to_the_supervisor_stops_the_server_cleanly(data_dir: Path, user: StartUser) -> None:
    holder = user().hear()
    Redis.from_url(holder.url).set("kept", "yes")
    (supervisor_pid,) = supervisors(data_dir)

    subprocess.run(["kill", "-TERM", str(supervisor_pid)], check=True)

    wait_gone(holder.pid, supervisor_pid)
    assert "ready to exit" in open_home(data_dir).log.read_text()
    assert Redis.from_url(holder.ensure_again().url).get("kept") == b"yes"


def test_release_stops_the_store_only_for_the_last_user(data_dir: Path, valkey: str, user: StartUser) -> None:
    holder = user().hear()
    mine = ensure(data_dir, server=valkey)
    assert mine.pid == holder.pid

    assert release(data_dir) is False
    assert alive(holder.pid)
    holder.kill()

    assert release(data_dir, wait_s=30)
    assert not alive(holder.pid)


def test_a_torn_tail_of_the_file_loses_only_the_torn_entry(data_dir: Path, server: str) -> None:
    client = Redis.from_url(ensure(data_dir, server=server).url)
    for number in range(100):
        client.xadd("log", {"n": number})
    assert release(data_dir, wait_s=30)

    newest = max((data_dir / "store" / "appendonlydir").glob("*.incr.aof"))
    newest.write_bytes(newest.read_bytes()[:-7])

    assert Redis.from_url(ensure(data_dir, server=server).url).xlen("log") == 99


def test_what_a_killed_rewrite_left_is_swept_away(data_dir: Path, valkey: str) -> None:
    home = open_home(data_dir)
    leftover = home.directory / "temp-rewriteaof-bg-4711.aof"
    leftover.write_bytes(b"half a file")

    ensure(data_dir, server=valkey)

    assert not leftover.exists()


@pytest.mark.parametrize("name", ["x" * 120, "spaces # and ? 'quotes' \" ü"])
def test_any_directory_name_works(tmp_path: Path, server: str, name: str) -> None:
    data_dir = tmp_path / name
    try:
        store = ensure(data_dir, server=server)
        assert Redis.from_url(store.url).info("server")["process_id"] == store.pid
        assert len(open_home(data_dir).socket.parts) > 1
    finally:
        assert release(data_dir, wait_s=30)


def test_the_store_keeps_every_write_and_evicts_nothing(data_dir: Path, valkey: str) -> None:
    """Field case 124: no key may be evicted."""
    client = Redis.from_url(ensure(data_dir, server=valkey).url)

    assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert client.config_get("appendonly") == {"appendonly": "yes"}
    assert client.config_get("appendfsync") == {"appendfsync": "everysec"}
    assert open_home(data_dir).socket.stat().st_mode & 0o777 == 0o700
    assert open_home(data_dir).directory.stat().st_mode & 0o777 == 0o700


def test_a_running_store_is_never_silently_less_durable_than_asked(data_dir: Path, valkey: str) -> None:
    ensure(data_dir, server=valkey, fsync="everysec")

    with pytest.raises(ConfigError, match="already runs with appendfsync everysec"):
        ensure(data_dir, server=valkey, fsync="always")


def test_files_of_another_kind_of_server_are_refused_with_both_names(data_dir: Path, valkey: str, redis: str) -> None:
    """Field case 132: Valkey 9 and Redis 8 cannot read each other's files; better said than half loaded."""
    ensure(data_dir, server=valkey)
    assert release(data_dir, wait_s=30)

    with pytest.raises(ConfigError, match=r"redis 8\..* cannot read .* valkey 9\."):
        ensure(data_dir, server=redis)
    assert find_server(valkey, written_by=open_home(data_dir).read_writer()).kind == "valkey"


def test_a_directory_that_was_removed_and_made_anew_gets_its_own_store(data_dir: Path, valkey: str) -> None:
    first = ensure(data_dir, server=valkey)
    data_dir.rename(data_dir.with_name("moved"))

    second = ensure(data_dir, server=valkey)

    assert second.pid != first.pid
    wait_gone(first.pid)
    with Redis.from_url(second.url) as client:  # its socket has the name that the first one's had
        assert client.ping()


def _answers(client: "Redis") -> bool:
    try:
        return bool(client.ping())
    except RedisConnectionError:
        return False
