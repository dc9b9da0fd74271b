"""Which processes a local stack runs, and with which environment. Pure.

Promises that what the caller set as `HEADRACE_*` reaches every service unless a flag says otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.stack.child import ServiceSpec

SERVICES = ("ingest", "scheduler", "gpu_worker", "notifier", "archivist")
"""In this order they start; an unbuilt one is skipped."""

DEFAULTS = {
    "HEADRACE_WORKER__DRAIN_S": "5",  # the whole stack stops within 15 s
    "HEADRACE_WEBHOOK__ALLOW_PRIVATE": "loopback",  # a newcomer's receiver runs on this host
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the flags of `headrace up` say; None leaves it to the environment or the default."""

    data_dir: Path
    host: str
    port: int
    pipelines: Path
    workers: int = 1
    devices: str | None = None
    devices_each: tuple[str, ...] | None = None  # of each worker: a GPU has one worker


def service_environment(
    environ: Mapping[str, str], wishes: Wishes, port: int, store_url: str, public_url: str, import_root: str
) -> dict[str, str]:
    """The environment of every service of the stack.

    Args:
        environ: our own environment, handed on.
        port: the one that was reserved.
        import_root: folder that holds the `services` package.
    """
    fixed = {
        "HEADRACE_REDIS__URL": store_url,
        "HEADRACE_DATA_DIR": str(wishes.data_dir),
        "HEADRACE_PIPELINES": str(wishes.pipelines),
        "HEADRACE_INGEST__HOST": wishes.host,
        "HEADRACE_INGEST__PORT": str(port),
        "PYTHONPATH": ":".join(part for part in (import_root, environ.get("PYTHONPATH")) if part),
        "PYTHONUNBUFFERED": "1",
    }
    devices = {"HEADRACE_WORKER__DEVICES": wishes.devices} if wishes.devices is not None else {}
    defaults = DEFAULTS | {"HEADRACE_PUBLIC_URL": public_url}
    unset = {name: value for name, value in defaults.items() if not environ.get(name)}
    return {**environ, **unset, **fixed, **devices}


def service_specs(
    built: Sequence[str],
    workers: int,
    python: str,
    environment: Mapping[str, str],
    devices_each: Sequence[str] | None = None,
    *,
    mirror: bool = False,
) -> tuple[ServiceSpec, ...]:
    """One entry per process, in the order of starting. `devices_each`: of each worker, where they differ.

    Args:
        mirror: whether the logs are mirrored: by a process of its own, which is the archivist's.
    """
    counts = {"gpu_worker": workers}

    def own(service: str, index: int) -> Mapping[str, str]:
        if devices_each is None or service != "gpu_worker":
            return environment
        return {**environment, "HEADRACE_WORKER__DEVICES": devices_each[index]}

    specs = [
        ServiceSpec(service, _name(service, index), _command(python, service), own(service, index))
        for service in built
        for index in range(counts.get(service, 1))
    ]
    if mirror and "archivist" in built:
        specs.append(ServiceSpec("archivist", "mirror", _command(python, "archivist.mirror"), environment))
    return tuple(specs)


def _name(service: str, index: int) -> str:
    return f"{service}-{index}" if index else service


def _command(python: str, service: str) -> tuple[str, ...]:
    # -P: a folder `services` in the working directory is not ours
    return (python, "-P", "-m", f"services.{service}")


def public_url(host: str, port: int) -> str:
    """Where a person on this host reaches the stack.

    >>> public_url("0.0.0.0", 8080), public_url("::1", 80)
    ('http://127.0.0.1:8080', 'http://[::1]:80')
    """
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 - read, not bound
        host = "::1" if host == "::" else "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
