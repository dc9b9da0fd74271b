"""What an audit asks of a model: the points of the grid, and the inputs that all of its runs have."""

import orjson

from contracts.model_spec import ModelSpec
from headrace.vram import grid
from headrace.vram.measuring import Plan


def plan_of(spec: ModelSpec, options: list[str], repeat: int, prompt: str | None, inputs: list[str]) -> Plan:
    """Lay out the points and hold each against the schema. Raises BadGrid."""
    points = grid.points_of(grid.read_grid(options) or spec.vram_grid)
    others = _inputs(inputs)
    asked = prompt if prompt is not None else _example(spec)
    grid.check(spec, points, asked, others)
    return Plan(spec, points, others if asked is None else {"prompt": asked, **others}, repeat)


def _inputs(options: list[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not name or not equals:
            raise grid.BadGrid(f"--input {option}: write a name and JSON, such as steps=4")
        try:
            found[name] = orjson.loads(value)
        except orjson.JSONDecodeError:
            found[name] = value
    return found


def _example(spec: ModelSpec) -> str | None:
    """Return a prompt where the model takes one: what its schema gives as an example, else any words."""
    properties = spec.schema.document.get("properties")
    described = properties.get("prompt") if isinstance(properties, dict) else None
    if not isinstance(described, dict):
        return None
    examples = described.get("examples")
    given = [described.get("default"), *(examples if isinstance(examples, list) else [])]
    return next((text for text in given if isinstance(text, str)), "a measurement of memory")
