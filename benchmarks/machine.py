"""What the figures were measured on, in words: processor, cores, memory, system, Python."""

import os
import platform
from pathlib import Path


def describe() -> str:
    """Return one phrase."""
    cores = f"{os.cpu_count()} CPUs ({_processor()})"
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    return f"{cores}, {_memory_gib()} GiB, {system}, Python {platform.python_version()}"


def _processor() -> str:
    return _line_of("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _line_of(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
