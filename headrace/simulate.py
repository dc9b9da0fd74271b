"""`headrace policy simulate`: recorded arrivals under another policy or fleet. Reads only; nothing is ever written."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import orjson
import typer
from pydantic import ValidationError

from contracts.errors import Corrupt, HeadraceError
from contracts.events import PolicyFacts
from contracts.policy import SchedulingPolicy
from contracts.settings import load_settings
from contracts.wire import Entry
from headrace.command import Output, exit_for_error
from headrace.exits import Exit
from headrace.output import Format, note, show_list, show_one
from headrace.recorded_events import BadInput, bytes_of, from_file, from_log, read_bound
from services.gpu_worker.devices import DeviceError, parse_devices
from services.gpu_worker.gpus.finding import Gpus
from services.scheduler.simulate.compared import Outcome, compare
from services.scheduler.simulate.fleet import Device
from services.scheduler.simulate.recorded import Recorded

_WAITS = ("p50", "p95", "p99")
_COLUMNS = ("of", "jobs", *(f"{name}{side}S" for name in _WAITS for side in ("Before", "After")))


def simulate(
    from_: Annotated[str | None, typer.Option("--from", metavar="T", help="RFC 3339 or a position.")] = None,
    to: Annotated[str | None, typer.Option(metavar="T", help="The same.", show_default="the end of the log")] = None,
    events: Annotated[Path | None, typer.Option(help="Event envelopes, one a line, instead of the log.")] = None,
    devices: Annotated[str | None, typer.Option(help="Another fleet, such as sim:24GiB*4.")] = None,
    weights: Annotated[Path | None, typer.Option(help="JSON {tenant: weight inside its tier}.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KNOB=V", help="lead_s=30; repeatable.")] = None,
    pool: Annotated[str, typer.Option(help="Name of the pool.")] = "default",
    output: Output = Format.TABLE,
) -> None:
    """Show what waits and devices would have been: as recorded, and with what is given."""
    try:
        if events is None and from_ is None:
            raise BadInput("give --from and --to, or --events FILE")
        recorded = Recorded(read_bound(from_, first=True), read_bound(to, first=False))
        for entry, where in from_file(events) if events else from_log(load_settings(os.environ), pool):
            _take(recorded, entry, where)
        _show(*_compare(recorded, devices, weights, set_ or []), output)
    except BadInput as fault:
        note(f"error: {fault}")
        raise typer.Exit(Exit.USAGE) from None
    except HeadraceError as fault:
        note(f"error: {fault}")
        raise typer.Exit(exit_for_error(fault)) from None


def _compare(
    recorded: Recorded, devices: str | None, weights: Path | None, knobs: list[str]
) -> tuple[Outcome, Outcome]:  # fmt: skip
    """Return what came of the arrivals before and after. Raises BadInput."""
    arrivals = recorded.arrivals()
    if not arrivals:
        raise BadInput("no jobs in the range")
    changed = _weights(weights, {arrival.tenant_id for arrival in arrivals})
    facts, fleet = _facts(knobs), _devices(devices) or recorded.fleet
    if not fleet:
        raise BadInput("no worker is recorded: give --devices")
    return compare(recorded, fleet, facts, changed)


def _take(recorded: Recorded, entry: Entry, where: str) -> None:
    try:
        recorded.apply(entry)
    except Corrupt as fault:
        raise BadInput(f"{where}: {fault.reason}") from None
    except ValueError:
        raise BadInput(f"{where}: the policy is out of bounds") from None


def _devices(text: str | None) -> tuple[Device, ...]:
    try:
        return (
            tuple(Device(bytes=spec.bytes_total) for spec in parse_devices(text, 0, Gpus(os.environ).found))
            if text
            else ()
        )
    except DeviceError as fault:
        raise BadInput(f"--devices: {fault}") from None


def _facts(knobs: list[str]) -> PolicyFacts:
    given = dict[str, object]()
    for name, _, value in (knob.partition("=") for knob in knobs):
        if name not in SchedulingPolicy.model_fields:
            raise BadInput(f"--set: no knob {name!r}; there are {', '.join(SchedulingPolicy.model_fields)}")
        given[name] = value
    try:
        facts = SchedulingPolicy.model_validate(given).facts()
    except ValidationError as fault:
        first = fault.errors()[0]
        raise BadInput(f"--set: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return PolicyFacts.model_validate(facts.model_dump(include=set(given)))


def _weights(path: Path | None, tenants: set[str]) -> Mapping[str, float]:
    if path is None:
        return {}
    try:
        found = {str(tenant): float(weight) for tenant, weight in orjson.loads(bytes_of(path)).items()}
    except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError):
        raise BadInput(f'{path}: write JSON such as {{"t_acme": 2.0}}') from None
    for tenant, weight in found.items():
        if tenant not in tenants:
            raise BadInput(f"{path}: tenant {tenant!r} has no job in the range")
        if not 0.001 <= weight <= 1000:
            raise BadInput(f"{path}: the weight of {tenant!r} must be 0.001 to 1000")
    return found


def _show(before: Outcome, after: Outcome, form: Format) -> None:
    rows = []
    for name, was in before.waits.items():
        sides = {"Before": was, "After": after.waits[name]}
        told = {f"{p}{side}S": round(getattr(w, f"{p}_s"), 3) for p in _WAITS for side, w in sides.items()}
        rows.append({"of": name, "jobs": was.jobs, **told})
    summary: dict[str, object] = {}
    for side, outcome in (("Before", before), ("After", after)):
        summary[f"usefulShare{side}"] = round(outcome.use.useful_share, 4)
        summary[f"swapsPer100{side}"] = round(outcome.use.swaps_per_100, 2)
        summary[f"neverStarted{side}"] = outcome.never_started
    show_list({"data": rows, "hasMore": False, **summary}, _COLUMNS, form)
    if form is not Format.JSON:
        show_one(summary, form)
