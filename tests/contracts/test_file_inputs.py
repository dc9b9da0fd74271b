"""Inputs that are files: a mark that nobody would obey is a fault of the schema, found when the models are loaded."""

import json
from typing import Any

import pytest

from contracts.file_inputs import FileInput, urls
from contracts.model_inputs import BadSchema, compile_schema

FILE = {"type": "string", "format": "uri", "x-headrace": "file"}


def files_of(properties: dict[str, Any], **more: Any) -> dict[str, FileInput]:
    text = json.dumps({"type": "object", "properties": properties, **more}).encode()
    return dict(compile_schema(text).files)


def test_single_files_and_lists_of_files_are_found() -> None:
    assert files_of(
        {
            "image": {**FILE, "contentMediaType": "image/*"},
            "mask": {**FILE, "type": ["string", "null"]},
            "frames": {"type": "array", "items": FILE},
            "steps": {"type": "integer"},
        }
    ) == {"image": FileInput(False, "image/*"), "mask": FileInput(), "frames": FileInput(True)}


@pytest.mark.parametrize(
    "properties",
    [
        {"image": {**FILE, "x-headrace": "picture"}},
        {"image": {**FILE, "format": "url"}},
        {"image": {"x-headrace": "file", "format": "uri"}},
        {"image": {**FILE, "contentMediaType": "png"}},
        {"deep": {"type": "object", "properties": {"image": FILE}}},
        {"image": {"anyOf": [FILE, {"type": "null"}]}},
        {"frames": {"type": "array", "items": {"type": "array", "items": FILE}}},
        {"frames": {"type": "array", "x-headrace": "file", "items": {"type": "string"}}},
    ],
)
def test_a_mark_that_nobody_would_obey_is_a_fault(properties: dict[str, Any]) -> None:
    with pytest.raises(BadSchema):
        files_of(properties)


def test_a_mark_in_a_definition_is_a_fault_and_an_input_of_that_name_is_none() -> None:
    with pytest.raises(BadSchema):
        files_of({"image": {"$ref": "#/$defs/file"}}, **{"$defs": {"file": FILE}})
    assert files_of({"x-headrace": {"type": "string"}}) == {}


def test_each_url_has_the_pointer_of_its_place() -> None:
    files = {"image": FileInput(), "a/b": FileInput(True, "image/png"), "none": FileInput(), "odd": FileInput(True)}
    fields = {"image": "https://x.example/1", "a/b": ["https://x.example/2", 7], "none": None, "odd": "text"}
    assert list(urls(files, fields)) == [
        ("/input/image", "https://x.example/1", None),
        ("/input/a~1b/0", "https://x.example/2", "image/png"),
        ("/input/odd", "text", None),
    ]
