"""Takes most of the bytes it was promised and lets go of them: whether a device really has what its supervisor offers.

Run as a pipeline, in a child as every job's. On a GPU the driver is asked, so that no library has to be there. Not
tried on a card yet. Standard library only.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

PERCENT = 90  # of the promise: the child itself needs a little
DRIVERS = {"cuda": "libcuda.so.1", "rocm": "libamdhip64.so"}


def load(device: Any, prepared: None) -> None:
    size = device.allocatable_bytes * PERCENT // 100
    if device.kind in DRIVERS:
        take_on_gpu(device.kind, size)
    else:  # address space is what the kernel counts against the slice: nothing has to be written to
        mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()


def take_on_gpu(kind: str, size: int) -> None:
    driver, pointer = ctypes.CDLL(DRIVERS[kind]), ctypes.c_void_p()
    if kind == "rocm":
        check("hipMalloc", driver.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)))
        check("hipFree", driver.hipFree(pointer))
        return
    number, context = ctypes.c_int(), ctypes.c_void_p()
    check("cuInit", driver.cuInit(0))
    check("cuDeviceGet", driver.cuDeviceGet(ctypes.byref(number), 0))  # the only one that this process sees
    check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number))
    check("cuCtxSetCurrent", driver.cuCtxSetCurrent(context))
    check("cuMemAlloc", driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)))
    check("cuMemFree", driver.cuMemFree_v2(pointer))


def check(call: str, status: int) -> None:
    if status != 0:
        raise RuntimeError(f"{call} answered {status}" + (": out of memory" if status == 2 else ""))


def run(model: None, inputs: Any, job: Any) -> None:
    raise job.Reject("this pipeline only tests a device")
