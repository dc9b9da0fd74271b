"""`python -m services.gpu_worker`: settings, signals, exit code. 2: wrong configuration, 1: left unsettled work."""

import asyncio
import contextlib
import gc
import os
import signal
import sys
from importlib import metadata

import uvloop

from contracts.archive import open_archive
from contracts.artifacts import Shelf, open_objects
from contracts.errors import ConfigError
from contracts.models import ModelRegistry, load
from contracts.secrecy import hide_this_process
from contracts.settings import Settings, load_settings
from contracts.store import Store
from contracts.telemetry import configure_logging
from services.gpu_worker.config import WorkerConfig, worker_config
from services.gpu_worker.devices import DeviceError
from services.gpu_worker.gpus.finding import Gpus
from services.gpu_worker.service import Supervisor
from services.gpu_worker.this_host import this_host


def main() -> int:
    hide_this_process()
    try:
        settings = load_settings(os.environ)
        gpus = Gpus(os.environ)
        config = worker_config(settings, this_host(gpus.found))
        models = load(settings.pipelines)
        refuse_two_runtimes()
        if not settings.redis.url:
            raise ConfigError(["HEADRACE_REDIS__URL: give the store's address; `headrace up` starts one by itself"])
        shelf = Shelf(open_objects(settings))
        configure_logging("gpu_worker", settings.log.level)
        return uvloop.run(serve(settings, config, models, shelf, gpus))
    except (ConfigError, DeviceError) as error:
        print(error, file=sys.stderr)
        return 2


async def serve(settings: Settings, config: WorkerConfig, models: ModelRegistry, shelf: Shelf, gpus: Gpus) -> int:
    """Run until SIGTERM or SIGINT; a second one ends the wait for running attempts."""
    stop, hurry = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    # What is alive now lives as long as the process, and a job makes hundreds of objects and hardly ever a cycle.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    store = Store(settings.redis.url)
    open_archive(store, settings)
    try:
        settled = await Supervisor(store, config, models, os.environ, shelf, gpus).run(stop, hurry)
    finally:
        await store.aclose()
    return 0 if settled else 1


def refuse_two_runtimes() -> None:
    """Raise ConfigError if both builds of onnxruntime are installed: the last one has overwritten the other."""
    installed = []
    for name in ("onnxruntime", "onnxruntime-gpu"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed.append(f"{name}=={metadata.version(name)}")
    if len(installed) == 2:
        repair = f"pip uninstall -y onnxruntime onnxruntime-gpu && pip install --force-reinstall {installed[1]}"
        raise ConfigError([f"{' and '.join(installed)} destroy each other; keep one: {repair}"])


if __name__ == "__main__":
    sys.exit(main())
