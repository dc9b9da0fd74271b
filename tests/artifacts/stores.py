"""Both stores of files, each empty: a directory, and a bucket of moto's S3 server."""

import importlib.util
import itertools
import os
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contracts.artifacts import Objects, open_objects
from contracts.settings import Settings

HAS_S3 = all(importlib.util.find_spec(name) for name in ("obstore", "moto", "flask"))
NEEDS_S3 = pytest.mark.skipif(not HAS_S3, reason="needs obstore and moto's server: make test EXTRAS=s3")
STORES = ["local", pytest.param("s3", marks=NEEDS_S3)]
SECRET = "not-for-anybodys-eyes"
_buckets = itertools.count(1)


@contextmanager
def s3_server() -> Iterator[str]:
    """Run moto's server in a thread; yields its address."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://127.0.0.1:{port}" if host in ("0.0.0.0", "::") else f"http://{host}:{port}"
    finally:
        server.stop()


def s3_settings(endpoint: str, prefix: str = "results", **more: Any) -> dict[str, object]:
    """Make a bucket and return the settings for it; credentials go into the environment, where they belong."""
    bucket = f"bucket-{os.getpid()}-{next(_buckets)}"
    request = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")
    urllib.request.urlopen(request, timeout=20).close()
    return {"url": f"s3://{bucket}/{prefix}", "endpoint": endpoint, "region": "us-east-1", "timeout_s": 20, **more}


def credentials(setenv: Callable[[str, str], None]) -> None:
    setenv("AWS_ACCESS_KEY_ID", "test")
    setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def open_s3(settings: dict[str, object]) -> Objects:
    return open_objects(Settings.model_validate({"artifacts": settings}))


def open_local(folder: Path) -> Objects:
    return open_objects(Settings.model_validate({"artifacts": {"url": str(folder)}}))
