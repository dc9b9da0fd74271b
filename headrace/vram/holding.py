"""The device of an audit: held as a worker would hold it, or only looked at."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from services.gpu_worker.devices import Device, claim_devices, parse_devices, release_devices, unheld
from services.gpu_worker.gpus.finding import Gpus
from services.gpu_worker.this_host import this_host


@contextmanager
def claimed(text: str) -> Iterator[Device]:
    """Hold the first device of the specification, as a worker would. Raises DeviceError."""
    gpus = Gpus(os.environ)
    host = this_host(gpus.found)
    devices = claim_devices(parse_devices(text, host.memory_bytes, host.found)[:1], host.name, host.lock_dir, gpus)
    try:
        yield devices[0]
    finally:
        release_devices(devices)


def specified(text: str) -> Device:
    """Return the device of the specification without holding it."""
    host = this_host(Gpus(os.environ).found)
    return unheld(parse_devices(text, host.memory_bytes, host.found)[0])
