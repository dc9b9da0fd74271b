"""A GPU whose driver library is made up: a package to put on the path of supervisors, and a file that it reads."""

import json
import os
import shutil
from pathlib import Path

from tests.gpu_worker import fake_nvml

GIB = 1 << 30


class Card:
    """One GPU; `hold` says which processes have how much of it."""

    uuid = "GPU-8f6a2b1c-0000-0000-0000-000000000001"

    def __init__(self, folder: Path, total_bytes: int = 24 * GIB) -> None:
        self.folder, self.total_bytes = folder, total_bytes
        self.folder.mkdir()
        shutil.copy(Path(fake_nvml.__path__[0]) / "pynvml.py", self.folder)
        self.hold({})

    def hold(self, holders: dict[int, int]) -> None:
        """Let these processes have these bytes."""
        told = {"uuid": self.uuid, "total": self.total_bytes, "holders": holders, "utilization": 37, "temperature": 61}
        (self.folder / "new").write_text(json.dumps([told]))
        os.replace(self.folder / "new", self.folder / "gpus.json")
