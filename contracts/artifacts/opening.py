"""Opens the store of files that the settings name."""

import re
from pathlib import Path

from contracts.artifacts.local import LocalObjects
from contracts.artifacts.objects import Objects
from contracts.errors import ConfigError
from contracts.settings import Settings

_S3 = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,62})(?:/(.*))?")


def open_objects(settings: Settings) -> Objects:
    """Open it; nothing is asked of it yet. Raises ConfigError."""
    chosen = settings.artifacts
    if "://" not in chosen.url:
        return LocalObjects(Path(chosen.url).absolute() if chosen.url else settings.data_dir.absolute() / "artifacts")
    match = _S3.fullmatch(chosen.url)
    if match is None:
        raise ConfigError(["HEADRACE_ARTIFACTS__URL: write s3://bucket/prefix, or a directory"])
    try:
        from contracts.artifacts.s3 import S3Objects
    except ImportError:
        raise ConfigError(["HEADRACE_ARTIFACTS__URL: s3:// needs the extra s3: pip install 'headrace[s3]'"]) from None
    prefix = (match[2] or "").strip("/")
    return S3Objects(match[1], prefix, chosen.endpoint, chosen.region, chosen.timeout_s)
