"""What is generated from the contracts: JSON Schemas, the state chart, the event catalogue.

`python -m contracts.publish` writes them; a test compares, so that neither can drift.
"""

import sys
from pathlib import Path

import orjson
from pydantic import BaseModel

from contracts import api
from contracts.event_types import asyncapi
from contracts.events import CATALOGUE
from contracts.job import TRANSITIONS

FOLDER = Path(__file__).parent
SCHEMAS = FOLDER / "schemas"
README = FOLDER / "README.md"


def schemas() -> dict[str, bytes]:
    """Return file name -> JSON Schema of each public model and each event, camelCase, 2020-12; and AsyncAPI."""
    models: dict[str, type[BaseModel]] = {
        "GenerationJobData": api.GenerationJobData,
        "WebhookPayload": api.WebhookPayload,
        **{f"events/{name}.v{model.VERSION}": model for name, model in CATALOGUE.items()},
    }
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    documents = {name: model.model_json_schema(by_alias=True) for name, model in models.items()}
    documents["asyncapi"] = asyncapi("1")
    return {f"{name}.json": orjson.dumps(document, option=options) for name, document in documents.items()}


def state_chart() -> str:
    """Return the Mermaid chart of TRANSITIONS, milestones left out."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for (before, event), after in TRANSITIONS.items():
        if before == after or event == "job.event_rejected":
            continue
        lines.append(f"    {before or '[*]'} --> {after}: {event}")
    return "\n".join([*lines, "```"])


def catalogue() -> str:
    """Return the table of events: type, version, who writes it and what it says."""
    rows = ["| event | version | written by, meaning |", "| --- | --- | --- |"]
    for name, model in CATALOGUE.items():
        rows.append(f"| `{name}` | {model.VERSION} | {(model.__doc__ or '').strip()} |")
    return "\n".join(rows)


def between(text: str, marker: str, content: str) -> str:
    """Replace what stands between `<!-- marker -->` and `<!-- /marker -->`."""
    start, end = f"<!-- {marker} -->\n", f"\n<!-- /{marker} -->"
    head, found, rest = text.partition(start)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"there are no markers {marker}")
    return head + start + content + end + tail


def readme(text: str) -> str:
    """Return the README of the contracts with its generated parts renewed."""
    return between(between(text, "states", state_chart()), "events", catalogue())


def main() -> int:
    """Write everything that is generated."""
    for name, content in schemas().items():
        path = SCHEMAS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    README.write_text(readme(README.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
