"""Read pipelines.toml, the file that ingest and every worker share: TOML text to a `ModelRegistry`.

Promises: all faults are reported together, each with its place in the file and what to write instead; a
path cannot leave the folder of the file; an unknown key is a fault, so a misspelt limit is never ignored.
`parse_models` is pure (files come in through `read`), `load` is the thin part that touches the disk.
Does not import or run author code.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from contracts import buckets
from contracts.errors import ConfigError
from contracts.model_inputs import BadSchema, InputFault, InputSchema, compile_schema
from contracts.model_spec import ModelRegistry, ModelSpec, ResourceSpec, check_input, describe, draw_seed
from contracts.profiles import ModelProfiles, read_profiles
from contracts.toml_table import Table

__all__ = [
    "InputFault",
    "InputSchema",
    "ModelRegistry",
    "ModelSpec",
    "ResourceSpec",
    "check_input",
    "describe",
    "draw_seed",
    "load",
    "parse_models",
]

ReadFile = Callable[[str], bytes]  # relative path -> content; raises OSError or ValueError with the reason

MAX_FILE_BYTES = 1024 * 1024
PROFILES = "profiles"  # folder beside the file
_DEFAULT_TIMEOUT_S = 600.0
_STAND_IN = b'{"type": "object"}'  # read instead of a file that has a fault already: one cause, one fault
_MODEL_KEYS = frozenset(
    {"entry", "inputs", "version", "pools", "vram_mib", "max_batch", "timeout_s", "silence_s"}
    | {"interpreter", "env", "resources", "cost_inputs", "vram", "keep_warm_s", "pin"}
)
_RESOURCE_KEYS = frozenset({"rate", "window_s"})
_MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_RESOURCE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


def load(path: Path, *, with_profiles: bool = True) -> ModelRegistry:
    """Read the models of `path`. Raises ConfigError with every fault in the file and the files it names."""
    base = path.resolve().parent
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: cannot be read ({error}); give the path of a pipelines.toml in UTF-8"]) from error

    read = reader(base)

    def read_but_profiles(relative: str) -> bytes:
        if relative.startswith(f"{PROFILES}/"):
            raise FileNotFoundError(relative)
        return read(relative)

    return parse_models(text, path.name, base, read if with_profiles else read_but_profiles)


def reader(base: Path) -> ReadFile:
    """Return what reads files below `base`, whose links are resolved."""

    def read(relative: str) -> bytes:
        target = (base / relative).resolve()  # symbolic links are followed before the folder is compared
        if not target.is_relative_to(base):
            raise ValueError("leaves the folder of this file; keep pipelines below it")
        with target.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"is larger than {MAX_FILE_BYTES} bytes")
        return content

    return read


def parse_models(text: str, file_name: str, base: Path, read: ReadFile) -> ModelRegistry:
    """Turn the text of a pipelines file into a registry.

    Args:
        text: TOML.
        file_name: How faults name the file.
        base: The folder that relative paths start from.
        read: Gives the content of a file below `base`.

    Raises:
        ConfigError: with all faults, each as `file: place: what to do`.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:  # says line and column; also where a name is defined twice
        raise ConfigError([f"{file_name}: is not TOML: {error}"]) from error
    faults: list[str] = []
    top = Table(document, "", faults)
    top.refuse_unknown(frozenset({"models", "resources"}))
    resources = {name: _resource(name, table) for name, table in top.tables("resources")}
    specs = tuple(_model(name, table, base, read, resources) for name, table in top.tables("models"))
    if not specs and not faults:
        faults.append("models: names no model; add a table [models.<name>]")
    if faults:
        raise ConfigError([f"{file_name}: {fault}" for fault in faults])
    return ModelRegistry(specs, MappingProxyType(resources), base)


def _resource(name: str, table: Table) -> ResourceSpec:
    table.refuse_unknown(_RESOURCE_KEYS)
    if not _RESOURCE_NAME.fullmatch(name):
        table.fault("", "the name of a resource is 1 to 32 of a-z, 0-9, _ and -, and starts with a letter")
    return ResourceSpec(name, table.whole("rate", None, least=1), table.seconds("window_s", 1.0) or 1.0)


def _model(name: str, table: Table, base: Path, read: ReadFile, resources: Mapping[str, ResourceSpec]) -> ModelSpec:
    table.refuse_unknown(_MODEL_KEYS)
    if not _MODEL_NAME.fullmatch(name):
        table.fault("", "the name of a model is 1 to 64 of a-z, 0-9, . _ and -, and starts with a letter or digit")
    entry, _ = _file(table, "entry", base, read)
    inputs, content = _file(table, "inputs", base, read)
    schema = _schema(table, content)
    version = table.text("version", "1", _VERSION)
    return ModelSpec(
        name=name,
        version=version,
        entry=entry,
        inputs=inputs,
        schema=schema,
        pools=table.pools("pools", "default"),
        vram_mib=table.whole_or_none("vram_mib", least=1),
        max_batch=table.whole("max_batch", 1, least=1),
        timeout_s=table.seconds("timeout_s", None) or _DEFAULT_TIMEOUT_S,
        silence_s=table.seconds("silence_s", None),
        interpreter=_interpreter(table.text("interpreter", ""), base),
        env=table.texts("env"),
        resources=_used(table, resources),
        cost_inputs=_cost_inputs(table, schema),
        vram_grid=_grid(table, schema),
        profile=_profile(table, f"{name}@{version}", read),
        keep_warm_s=table.seconds("keep_warm_s", None),
        pin=table.flag("pin"),
    )


def _used(table: Table, resources: Mapping[str, ResourceSpec]) -> Mapping[str, int]:
    used = table.wholes("resources", least=1)
    for name, units in used.items():
        if name not in resources:
            table.fault(f"resources.{name}", f"is not declared; add [resources.{name}] with rate and window_s")
        elif units > resources[name].rate:
            table.fault(f"resources.{name}", f"is above the rate {resources[name].rate}: no job could start")
    return MappingProxyType(dict(used))


def _cost_inputs(table: Table, schema: InputSchema) -> tuple[str, ...]:
    """Read which inputs decide how long a job takes; where the author says nothing, the schema tells."""
    names = table.names("cost_inputs")
    if names is None:
        return buckets.cost_inputs(schema)
    for name in names:
        if not buckets.may_be_cost(schema, name):
            table.fault("cost_inputs", f"{name} must be an integer, number, boolean or enum of the schema")
    return tuple(sorted(set(names)))


def _grid(table: Table, schema: InputSchema) -> Mapping[str, tuple[int | float, ...]]:
    vram = table.table("vram")
    vram.refuse_unknown(frozenset({"grid"}))
    grid = vram.grid("grid")
    for name in grid:
        if not buckets.may_be_grid(schema, name):
            vram.fault(f"grid.{name}", "must be an integer or number of the schema")
    return grid


def profile_file(reference: str) -> str:
    """Return where the profile of a model is, from the folder of pipelines.toml."""
    return f"{PROFILES}/{reference}.json"


def read_profile(reference: str, read: ReadFile) -> ModelProfiles | None:
    """Return what was measured of a model, None if nothing was. Raises ValueError: what to do about the file."""
    name = profile_file(reference)
    try:
        found = read_profiles(read(name))
        if found.model == reference:
            return found
        reason = f"is of {found.model}"
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = f"cannot be read: {error.strerror or type(error).__name__}"
    except ValueError as error:
        reason = f"is no profile: {error}"
    raise ValueError(f"{name} {reason}; remove it, or measure again with `headrace vram audit`")


def _profile(table: Table, reference: str, read: ReadFile) -> ModelProfiles | None:
    try:
        return read_profile(reference, read)
    except ValueError as fault:
        table.fault("", str(fault))
        return None


def _file(table: Table, key: str, base: Path, read: ReadFile) -> tuple[Path, bytes]:
    relative = table.text(key)
    parts = PurePosixPath(relative)
    if parts.is_absolute() or ".." in parts.parts:
        table.fault(key, "must be a path below the folder of this file, without ..")
    elif relative:
        try:
            return base / relative, read(relative)
        except OSError as error:
            table.fault(key, f"{relative} cannot be read: {error.strerror or type(error).__name__}")
        except ValueError as error:
            table.fault(key, f"{relative} {error}")
    return base, _STAND_IN


def _schema(table: Table, content: bytes) -> InputSchema:
    try:
        return compile_schema(content)
    except BadSchema as error:
        table.fault("inputs", f"the schema {error}")
        return compile_schema(_STAND_IN)


def _interpreter(text: str, base: Path) -> str:
    """Make a path absolute; a bare name is left to the PATH of the worker, which may be another host."""
    return str(base / text) if "/" in text else text
