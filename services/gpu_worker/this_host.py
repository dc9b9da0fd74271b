"""What is to be known of this machine before anything else."""

import os
import socket
import tempfile
from pathlib import Path

from services.gpu_worker.config import Host
from services.gpu_worker.gpus.facts import Found


def this_host(found: Found) -> Host:
    """Collect what is to be known of this machine, beside the GPUs that were found."""
    return Host(
        name=socket.gethostname().partition(".")[0].lower()[:40] or "host",
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        pid=os.getpid(),
        lock_dir=Path(tempfile.gettempdir()) / "headrace-locks",
        found=found,
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
