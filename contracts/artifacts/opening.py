"""Opens the stores of objects that the settings name: of files, and of the archive."""

import re
from pathlib import Path

from contracts.artifacts.local import LocalObjects
from contracts.artifacts.objects import Objects
from contracts.errors import ConfigError
from contracts.settings import ObjectSettings, Settings

_S3 = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,62})(?:/(.*))?")


def open_objects(settings: Settings) -> Objects:
    """Open the store of artifacts; nothing is asked of it yet. Raises ConfigError."""
    return _open(settings.artifacts, settings.data_dir / "artifacts", "HEADRACE_ARTIFACTS__URL")


def open_archive_objects(settings: Settings) -> Objects:
    """Open the store of the archive; nothing is asked of it yet. Raises ConfigError."""
    return _open(settings.archive, settings.data_dir / "archive", "HEADRACE_ARCHIVE__URL")


def _open(chosen: ObjectSettings, folder: Path, setting: str) -> Objects:
    if "://" not in chosen.url:
        return LocalObjects(Path(chosen.url or folder).absolute())
    match = _S3.fullmatch(chosen.url)
    if match is None:
        raise ConfigError([f"{setting}: write s3://bucket/prefix, or a directory"])
    try:
        from contracts.artifacts.s3 import S3Objects
    except ImportError:
        raise ConfigError([f"{setting}: s3:// needs the extra s3: pip install 'headrace[s3]'"]) from None
    prefix = (match[2] or "").strip("/")
    return S3Objects(match[1], prefix, chosen.endpoint, chosen.region, chosen.timeout_s)
