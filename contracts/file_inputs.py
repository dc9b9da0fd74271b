"""Inputs that are files: declared in a model's schema, given as URLs or as ids of stored files. Pure.

    "image": {"type": "string", "format": "uri", "x-headrace": "file", "contentMediaType": "image/*"}
    "frames": {"type": "array", "maxItems": 8, "items": {"type": "string", "format": "uri", "x-headrace": "file"}}
    "inputArtifacts": {"type": "array", "items": {"type": "string"}, "maxItems": 2}

The worker puts a path in the place of each such value. `inputArtifacts` is a name, not a mark: it holds ids of stored
files (results and uploads) of the same tenant. Promises: a mark that nobody would obey is a fault of the schema.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MARK = "x-headrace"
FILE = "file"
ARTIFACTS = "inputArtifacts"
ARTIFACT_POOLS = "artifactPools"  # in a job's body: id -> the pool in whose folder the file lies
MAX_FILES = 16  # of one job, URLs and ids together


@dataclass(frozen=True, slots=True)
class FileInput:
    """One marked input. `many`: a list of URLs; `media_type`: what the files must be, such as `image/*`."""

    many: bool = False
    media_type: str | None = None


def declared(document: Mapping[str, object], fault: type[ValueError]) -> dict[str, FileInput]:
    """Return the marked inputs of a schema by name. Raises `fault` with what to change.

    >>> declared({"properties": {"image": {"type": "string", "format": "uri", "x-headrace": "file"}}}, ValueError)
    {'image': FileInput(many=False, media_type=None)}
    """
    found: dict[str, FileInput] = {}
    for name, schema in _properties(document):
        inner = schema.get("items") if schema.get("type") == "array" else schema
        if isinstance(inner, dict) and inner.get(MARK) is not None:
            found[name] = FileInput(inner is not schema, _checked(name, inner, fault))
    if _marks(document) != len(found):
        raise fault(f'has "{MARK}" where it is not obeyed; mark an input, or the items of a list that is an input')
    return found


def urls(files: Mapping[str, FileInput], fields: Mapping[str, object]) -> Iterator[tuple[str, str, str | None]]:
    """Yield JSON Pointer, URL and wanted media type of each URL in a request's `input`.

    >>> list(urls({"image": FileInput()}, {"image": "https://a.example/b.png", "steps": 3}))
    [('/input/image', 'https://a.example/b.png', None)]
    """
    for name, each in files.items():
        value = fields.get(name)
        if each.many and isinstance(value, list):
            for index, url in enumerate(value):
                if isinstance(url, str):
                    yield f"/input/{_escaped(name)}/{index}", url, each.media_type
        elif isinstance(value, str):
            yield f"/input/{_escaped(name)}", value, each.media_type


def is_wanted(media_type: str | None, wanted: str | None) -> bool:
    """Tell whether a file of this type (None: unknown) may stand where `wanted` is.

    >>> is_wanted("image/png", "image/*"), is_wanted(None, "image/*"), is_wanted(None, None)
    (True, False, True)
    """
    if wanted is None or wanted == "*/*":
        return True
    if media_type is None:
        return False
    return media_type == wanted or (wanted.endswith("/*") and media_type.startswith(wanted[:-1]))


def _properties(document: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    properties = document.get("properties")
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        if isinstance(schema, dict):
            yield name, schema


def _checked(name: str, schema: Mapping[str, object], fault: type[ValueError]) -> str | None:
    kinds = schema.get("type")
    is_text = kinds == "string" or (isinstance(kinds, list) and set(kinds) == {"string", "null"})
    if schema[MARK] != FILE or not is_text or schema.get("format") != "uri":
        raise fault(
            f'marks {name} in a way that is not known; write "type": "string", "format": "uri", "{MARK}": "file"'
        )
    wanted = schema.get("contentMediaType")
    if wanted is not None and not (isinstance(wanted, str) and wanted.count("/") == 1):
        raise fault(f"names no media type for {name}; write one such as image/png or image/*")
    return wanted


def _marks(node: object) -> int:
    if isinstance(node, dict):
        own = MARK in node and not isinstance(node[MARK], dict)  # an input may be called like the mark
        return own + sum(_marks(each) for each in node.values())
    return sum(_marks(each) for each in node) if isinstance(node, list) else 0


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
