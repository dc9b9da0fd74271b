"""A pipeline of the GPU checks: memory from the driver itself, so that a child is ready in a fraction of a second."""

import ctypes
import os


def load(device, prepared):
    driver = ctypes.CDLL("libcuda.so.1")
    number, context, block = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    asked = [
        driver.cuInit(0),
        driver.cuDeviceGet(ctypes.byref(number), 0),
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number),
        driver.cuCtxSetCurrent(context),
        driver.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(int(os.environ["BYTES"]))),
    ]
    if any(asked):
        raise MemoryError(f"the driver answered {asked}")
    return block


def run(block, inputs, job):
    return {"pid": os.getpid()}
