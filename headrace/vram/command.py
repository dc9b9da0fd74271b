"""`headrace vram audit` and `headrace vram show`."""

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from contracts import models
from contracts.errors import HeadraceError
from contracts.model_spec import ModelRegistry, ModelSpec
from contracts.profiles import Profile, make_profile, unlike
from contracts.settings import Settings, load_settings
from headrace.command import Output, exit_for_error
from headrace.exits import Exit
from headrace.output import Format, note, show_list, show_one
from headrace.vram import grid, report
from headrace.vram.asking import plan_of
from headrace.vram.holding import claimed, specified
from headrace.vram.measuring import AuditFailed, Measured, Plan, measure
from headrace.vram.plot import NoPlot, draw
from headrace.vram.profile_file import put_profile
from headrace.vram.telling import tell
from services.gpu_worker.config import reserve_bytes
from services.gpu_worker.devices import Device, DeviceError
from services.gpu_worker.gpus.facts import Found
from services.gpu_worker.machine import installed, machine_of
from services.gpu_worker.this_host import this_host

app = typer.Typer(no_args_is_help=True, help="What a model needs of a device.")

Pipelines = Annotated[Path | None, typer.Option(help="The models.", show_default="pipelines/pipelines.toml")]
OnDevice = Annotated[str | None, typer.Option("--device", metavar="SPEC", help="cpu, sim:8GiB, cuda:0.")]
AsJson = Annotated[bool, typer.Option("--json", help="The same as -o json.")]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where things are: settings and models."""

    settings: Settings
    registry: ModelRegistry

    def find(self, name: str) -> ModelSpec:
        """Return a model; unknown ends the program."""
        spec = self.registry.find(name)
        if spec is None:
            note(f"error: no model {name!r}; there are {', '.join(self.registry.names)}")
            raise typer.Exit(Exit.NOT_FOUND)
        return spec

    def file(self, spec: ModelSpec) -> Path:
        """Return where the profile of a model is."""
        return self.registry.base / models.profile_file(spec.reference)


@app.command()
def audit(
    model: Annotated[str, typer.Argument(help="name, or name@version.")],
    grid_: Annotated[
        list[str] | None, typer.Option("--grid", metavar="INPUT=N,N", help="Instead of vram.grid.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, max=20, help="Runs of a point; the highest peak counts.")] = 2,
    device: OnDevice = None,
    prompt: Annotated[str | None, typer.Option(help="What all runs are asked.", show_default="from the schema")] = None,
    input_: Annotated[list[str] | None, typer.Option("--input", metavar="NAME=JSON", help="Of all runs.")] = None,
    plot: Annotated[bool, typer.Option(help="Draw a PNG beside the profile.")] = True,
    publish: Annotated[bool, typer.Option(help="Tell the pools of the model, where a store is.")] = True,
    pipelines: Pipelines = None,
    output: Output = Format.TABLE,
    as_json: AsJson = False,
) -> None:
    """Measure the peak memory of a model over a grid of parameters, fit it, and write its profile."""
    form = Format.JSON if as_json else output
    with _failures():
        place = _place(pipelines, with_profiles=False)
        spec = place.find(model)
        plan = plan_of(spec, grid_ or [], repeat, prompt, input_ or [])
        with claimed(device or place.settings.worker.devices) as held:
            measured = asyncio.run(_measured(plan, held))
            profile = _profile(place, spec, held, plan, measured)
        more = _kept(place, spec, profile, plot=plot, publish=publish)
        more["skipped"] = [dict(point) for point in measured.skipped]
        sizes = (held.bytes_total, reserve_bytes(place.settings.worker, held.kind))
        if form is Format.TABLE:
            _show_table(spec.reference, profile, *sizes, (), more)
            note("ingest and workers of this folder use it within seconds; copy it to the others")
        else:
            show_one(report.document(spec.reference, profile, *sizes, (), more), form)


@app.command()
def show(
    model: Annotated[str | None, typer.Argument(help="name, or name@version; else all.")] = None,
    device: OnDevice = None,
    pipelines: Pipelines = None,
    output: Output = Format.TABLE,
    as_json: AsJson = False,
) -> None:
    """Show profiles: peaks, fit, how many fit on the device that was measured, and what is unlike here."""
    form = Format.JSON if as_json else output
    with _failures():
        place = _place(pipelines, with_profiles=True)
        specs = list(place.registry) if model is None else [place.find(model)]
        here = specified(device or place.settings.worker.devices)
        found = [(spec, profile) for spec in specs for profile in (spec.profile.profiles if spec.profile else ())]
        if not found:
            note(f"no profile of {model or 'any model'}; `headrace vram audit` measures one")
            raise typer.Exit(Exit.NOT_FOUND)
        documents = []
        for spec, profile in found:
            machine = machine_of(here, spec, place.registry.base, installed(spec.interpreter))
            size_bytes = here.bytes_total if device is not None else profile.budget_bytes
            faults = unlike(profile, machine)
            sizes = (size_bytes, reserve_bytes(place.settings.worker, here.kind))
            if form is Format.TABLE:
                _show_table(spec.reference, profile, *sizes, faults, {})
            documents.append(report.document(spec.reference, profile, *sizes, faults, {}))
        if form is not Format.TABLE:
            show_list({"data": documents, "hasMore": False}, (), form)


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except (grid.BadGrid, DeviceError) as fault:
        note(f"error: {fault}")
        raise typer.Exit(Exit.USAGE) from None
    except AuditFailed as fault:
        note(f"error: {fault}")
        raise typer.Exit(Exit.FAILED_CHECK) from None
    except HeadraceError as fault:
        note(f"error: {fault}")
        raise typer.Exit(exit_for_error(fault)) from None


def _place(pipelines: Path | None, *, with_profiles: bool) -> _Place:
    settings = load_settings(os.environ)
    path = (pipelines or settings.pipelines).expanduser()
    return _Place(settings, models.load(path, with_profiles=with_profiles))


async def _measured(plan: Plan, device: Device) -> Measured:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar,
        tempfile.TemporaryDirectory(prefix="headrace-audit-") as folder,
    ):
        task = bar.add_task(f"{plan.spec.reference} on {device.kind}", total=len(plan.points))
        return await measure(
            plan, device, this_host(Found()).cores, Path(folder), lambda done: bar.update(task, completed=done)
        )


def _profile(place: _Place, spec: ModelSpec, device: Device, plan: Plan, measured: Measured) -> Profile:
    machine = machine_of(device, spec, place.registry.base, measured.runtimes)
    names = sorted({name for point in plan.points for name in point})
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    try:
        return make_profile(
            machine, names, measured.points, device.bytes_total, measured.context_bytes, now, measured.weights_bytes,
            measured.load_peak_bytes,
        )  # fmt: skip
    except ValueError:
        least = report.shown(plan.points[0])
        raise AuditFailed(f"nothing fits: even {least} runs out of {device.bytes_total >> 20} MiB") from None


def _kept(place: _Place, spec: ModelSpec, profile: Profile, *, plot: bool, publish: bool) -> dict[str, Any]:
    """Write profile and picture, tell the pools; return what was done."""
    path = place.file(spec)
    put_profile(path, spec, profile)
    done: dict[str, Any] = {"file": str(path), "plot": None, "told": []}
    if plot:
        try:
            draw(spec.reference, profile, path.with_suffix(".png"))
            done["plot"] = str(path.with_suffix(".png"))
        except NoPlot as fault:
            note(str(fault))
    if publish:
        try:
            done["told"] = tell(place.settings, spec, profile)
        except HeadraceError as fault:
            note(f"no pool was told: {fault}")
    return done


def _show_table(
    model: str, profile: Profile, device_bytes: int, reserve_bytes: int, faults: tuple[str, ...],
    more: Mapping[str, Any],
) -> None:  # fmt: skip
    page = {"data": report.rows(profile, device_bytes, reserve_bytes), "hasMore": False}
    show_list(page, report.columns(profile), Format.TABLE)
    said = {name: value for name, value in more.items() if value}
    show_one({**report.summary(model, profile, device_bytes, reserve_bytes), **said}, Format.TABLE)
    for fault in faults:
        note(f"warning: {fault}")
