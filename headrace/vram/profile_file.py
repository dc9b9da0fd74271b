"""The file beside the models that holds the profiles of one of them.

Promises: it is replaced as a whole; what it has of other devices stays.
"""

import os
from pathlib import Path

from contracts.model_spec import ModelSpec
from contracts.profiles import ModelProfiles, Profile, read_profiles


def put_profile(path: Path, spec: ModelSpec, profile: Profile) -> None:
    """Put the profile in the place of an older one of the same device."""
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    beside.write_text(_old(path, spec).with_profile(profile).to_json())
    beside.replace(path)


def _old(path: Path, spec: ModelSpec) -> ModelProfiles:
    """Return what the file has of other devices; what cannot be read is replaced."""
    try:
        found = read_profiles(path.read_bytes())
        return found if found.model == spec.reference else ModelProfiles(model=spec.reference)
    except (OSError, ValueError):
        return ModelProfiles(model=spec.reference)
