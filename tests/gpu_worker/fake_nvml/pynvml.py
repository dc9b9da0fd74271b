"""What nvidia-ml-py would say on a host with the GPUs of a file: $FAKE_NVML, else `gpus.json` beside a copy of this.

Only the library's boundary is made up; who is asked, when, and what becomes of it is ours and real.
"""

import json
import os
from pathlib import Path
from types import SimpleNamespace

NVML_TEMPERATURE_GPU = 0
NVML_DEVICE_MIG_ENABLE = 1
nvmlMemory_v2 = 0x02000028


class NVMLError(Exception):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


_BESIDE = Path(__file__).with_name("gpus.json")


def _path():
    return Path(os.environ["FAKE_NVML"]) if "FAKE_NVML" in os.environ else _BESIDE


def _gpus():
    return json.loads(_path().read_text())


def _gpu(handle):
    whole, _, part = handle.partition("/")
    gpu = next(gpu for gpu in _gpus() if gpu["uuid"] == whole)
    return gpu["slices"][int(part)] if part else gpu


def _told(handle, name):
    if _gpu(handle).get(name) is None:
        raise NVMLError("Not Supported")
    return _gpu(handle)[name]


def nvmlInit():
    if not _path().exists():
        raise NVMLError_LibraryNotFound("NVML Shared Library Not Found")


def nvmlSystemGetDriverVersion():
    return "570.86.15"


def nvmlDeviceGetCount():
    return len(_gpus())


def nvmlDeviceGetHandleByIndex(index):
    return _gpus()[index]["uuid"]


def nvmlDeviceGetHandleByUUID(uuid):
    return uuid


def nvmlDeviceGetUUID(handle):
    return _gpu(handle)["uuid"]


def nvmlDeviceGetName(handle):
    return _gpu(handle).get("name", "NVIDIA L4")


def nvmlDeviceGetMigMode(handle):
    return [int("slices" in _gpu(handle))] * 2


def nvmlDeviceGetMaxMigDeviceCount(handle):
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(handle, index):
    if index >= len(_gpu(handle)["slices"]):
        raise NVMLError("Not Found")
    return f"{handle}/{index}"


def nvmlDeviceGetMemoryInfo(handle, version=None):
    total, reserved = _told(handle, "total"), _gpu(handle).get("reserved", 0)
    used = sum(size or 0 for size in _gpu(handle).get("holders", {}).values())
    if version is None:  # version 1 counts what the driver keeps as used
        return SimpleNamespace(total=total, free=total - used - reserved, used=used + reserved)
    return SimpleNamespace(total=total, reserved=reserved, free=total - used - reserved, used=used)


def nvmlDeviceGetComputeRunningProcesses(handle):
    holders = _gpu(handle).get("holders", {})
    return [SimpleNamespace(pid=int(pid), usedGpuMemory=size) for pid, size in holders.items()]


def nvmlDeviceGetGraphicsRunningProcesses(handle):
    return []


def nvmlDeviceGetUtilizationRates(handle):
    return SimpleNamespace(gpu=_told(handle, "utilization"), memory=0)


def nvmlDeviceGetTemperature(handle, sensor):
    return _told(handle, "temperature")
