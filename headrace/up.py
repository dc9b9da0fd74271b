"""`headrace up`: the local stack in the foreground, from the code that production runs.

Promises one line of JSON on standard output with `--json`, exactly when the stack is ready; everything else goes to
standard error and to the logs. SIGTERM, SIGINT and SIGHUP stop all within 15 s; a second one does not wait.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import orjson
import typer

import headrace
from contracts import models
from contracts.errors import ConfigError, HeadraceError
from contracts.settings import Settings, load_settings
from headrace.exits import Exit
from headrace.output import note
from headrace.stack.claim import AlreadyRunning, make_data_dir
from headrace.stack.logs import StackLog
from headrace.stack.plan import Wishes
from headrace.stack.stack import Stack
from services.gpu_worker.config import Host
from services.gpu_worker.devices import DeviceError, divide, parse_devices
from services.gpu_worker.gpus.finding import Gpus
from services.gpu_worker.this_host import this_host

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def up(
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Where to listen; 0 takes any.", show_default="8080")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where all state lies.", show_default="./.headrace")] = None,
    pipelines: Annotated[
        Path | None, typer.Option(help="The models to serve.", show_default="pipelines/pipelines.toml")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Worker supervisors on this host.")] = 1,
    devices: Annotated[
        str | None,
        typer.Option(
            help="For each supervisor: cpu*2, sim:24GiB*4; GPUs (gpu, cuda:0) are divided among them.",
            show_default="those found",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON when ready.")] = False,
) -> None:
    """Run the whole stack on this machine until it is told to stop."""
    try:
        settings = load_settings(os.environ)
        wishes = read_wishes(settings, port=port, data_dir=data_dir, pipelines=pipelines)
        each = divided(
            settings.worker.devices if devices is None else devices, workers, this_host(Gpus(os.environ).found)
        )
        asyncio.run(_run(replace(wishes, workers=workers, devices=devices, devices_each=each), settings, as_json))
    except HeadraceError as fault:
        note(f"error: {fault}")
        raise typer.Exit(exit_for_fault(fault)) from None


def divided(devices: str, workers: int, host: Host) -> tuple[str, ...] | None:
    """Return what each of several workers is given; None where all get the same. Raises ConfigError."""
    try:
        return divide(parse_devices(devices, host.memory_bytes, host.found), workers) if workers > 1 else None
    except DeviceError as fault:
        raise ConfigError([f"--devices: {fault}"]) from None


def read_wishes(settings: Settings, *, port: int | None, data_dir: Path | None, pipelines: Path | None) -> Wishes:
    """Complete the flags by the settings; paths become absolute, as services may run elsewhere."""
    return Wishes(
        data_dir=Path(os.path.abspath((data_dir or settings.data_dir).expanduser())),
        host=settings.ingest.host,
        port=settings.ingest.port if port is None else port,
        pipelines=_find_pipelines(
            (pipelines or settings.pipelines).expanduser(),
            is_default=pipelines is None and "pipelines" not in settings.model_fields_set,
        ),
    )


def exit_for_fault(fault: HeadraceError) -> Exit:
    """The exit code of a stack that could not be started."""
    if isinstance(fault, ConfigError):
        return Exit.USAGE
    return Exit.CONFLICT if isinstance(fault, AlreadyRunning) else Exit.UNAVAILABLE


async def _run(wishes: Wishes, settings: Settings, as_json: bool) -> None:
    registry = models.load(
        wishes.pipelines
    )  # before anything is started: its faults are told once, not by each service
    make_data_dir(wishes.data_dir)
    log = StackLog(wishes.data_dir / "logs", sys.stderr)
    try:
        async with Stack(wishes, settings, os.environ, log) as stack:
            stop = _stop_on_signals(stack)
            if await _start(stack, stop):
                _announce(stack, wishes, registry.names, as_json)
                await stop.wait()
                log.say("stopping")
    finally:
        log.close()


async def _start(stack: Stack, stop: asyncio.Event) -> bool:
    """Start the stack unless a signal comes first; True when it is ready."""
    starting, stopped = asyncio.create_task(stack.start()), asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if starting.done():
        await starting
        return True
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    return False


def _stop_on_signals(stack: Stack) -> asyncio.Event:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            stack.kill()
        stop.set()

    for number in _STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    return stop


def _announce(stack: Stack, wishes: Wishes, names: Sequence[str], as_json: bool) -> None:
    ready = {
        "url": stack.url,
        "apiKey": stack.keys.api_key,
        "adminKey": stack.keys.admin_key,
        "webhookSecret": stack.keys.webhook_secret,
        "dataDir": str(wishes.data_dir),
        "redis": stack.store_url,
        "pids": stack.pids(),
    }
    text = orjson.dumps(ready).decode() if as_json else welcome(stack.url, stack.keys.api_key, names)
    with contextlib.suppress(BrokenPipeError):  # nobody reads: the stack is of use nevertheless
        print(text, flush=True)


def welcome(url: str, api_key: str, names: Sequence[str]) -> str:
    """The text for a person: address, key, and three lines to paste, each complete in itself, with a served model."""
    model = "scenes" if "scenes" in names else names[0]
    curl = f"curl -sS -w '\\n' -H 'Authorization: Bearer {api_key}'"
    body = f'{{"userId":"me","model":"{model}","prompt":"a red lighthouse by the sea at sunset"}}'
    post = f"{curl} -H 'Content-Type: application/json' -d '{body}' {url}/v1/jobs"
    ended = '"status":"(completed|failed|cancelled|expired)"'
    return "\n".join(
        [
            f"Headrace runs at {url}",
            f"key {api_key}",
            "",
            "# submit a job",
            f"JOB=$({post} | grep -o 'job_[0-9a-z]*' | head -n 1); echo $JOB",
            "# watch it to its end",
            f"until {curl} {url}/v1/jobs/$JOB | tee /dev/stderr | grep -qE '{ended}'; do sleep 1; done",
            "# fetch its result",
            f"{curl} {url}/v1/jobs/$JOB/result",
            "",
            "Ctrl-C stops it.",
        ]
    )


def _find_pipelines(wanted: Path, *, is_default: bool) -> Path:
    """The file that was named; the default may also be the one that ships with us."""
    shipped = Path(headrace.__file__).resolve().parents[1] / "pipelines" / "pipelines.toml"
    if is_default and not wanted.exists() and shipped.exists():
        return shipped
    if not wanted.is_file():
        raise ConfigError([f"{wanted} is not there: name a pipelines.toml with --pipelines or HEADRACE_PIPELINES"])
    return wanted.resolve()
