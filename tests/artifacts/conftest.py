"""`objects`: each store in turn, empty."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.artifacts import Objects
from tests.artifacts import stores


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with stores.s3_server() as endpoint:
        yield endpoint


@pytest.fixture(params=stores.STORES)
def objects(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Objects:
    if request.param == "local":
        return stores.open_local(tmp_path / "store")
    stores.credentials(monkeypatch.setenv)
    return stores.open_s3(stores.s3_settings(request.getfixturevalue("s3_endpoint")))
