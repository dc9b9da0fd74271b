"""The bucket of a job: which inputs are in it, and that no free text ever is."""

import json

import pytest

from contracts.buckets import MAX_LENGTH, bucket_of, cost_inputs, may_be_cost
from contracts.model_inputs import InputSchema, compile_schema

PROPERTIES = {
    "prompt": {"type": "string"},
    "seed": {"type": "integer"},
    "steps": {"type": "integer", "default": 24},
    "size": {"type": ["integer", "null"]},
    "hires": {"type": "boolean"},
    "sampler": {"enum": ["euler", "dpm++ 2m"]},
    "guidance": {"type": "number"},
    "note": {"type": ["integer", "string"]},
}


def schema(properties: object = PROPERTIES) -> InputSchema:
    return compile_schema(json.dumps({"type": "object", "properties": properties}).encode())


def test_whole_numbers_flags_and_listed_values_count_but_neither_the_seed_nor_text() -> None:
    assert cost_inputs(schema()) == ("hires", "sampler", "size", "steps")


@pytest.mark.parametrize(("name", "allowed"), [("guidance", True), ("prompt", False), ("note", False), ("x", False)])
def test_an_author_may_add_a_number_but_no_text(name: str, allowed: bool) -> None:
    assert may_be_cost(schema(), name) is allowed


@pytest.mark.parametrize(
    ("fields", "bucket"),
    [
        ({}, "steps=24"),
        ({"steps": 30, "size": 512, "seed": 7}, "size=512;steps=30"),
        ({"steps": 30.0, "hires": True, "sampler": "dpm++ 2m"}, "hires=1;sampler=dpm++_2m;steps=30"),
        ({"guidance": 2.5467}, "guidance=2.5;steps=24"),
    ],
)
def test_what_decides_about_the_time_stands_in_the_bucket(fields: dict[str, object], bucket: str) -> None:
    assert bucket_of(schema(), (*cost_inputs(schema())[:2], "guidance", "size", "steps"), fields) == bucket


def test_a_long_bucket_becomes_a_digest_and_an_empty_one_is_none() -> None:
    many = schema({f"number_{i:02}": {"type": "integer"} for i in range(40)})
    fields = dict.fromkeys(cost_inputs(many), 1)

    found = bucket_of(many, cost_inputs(many), fields)

    assert found is not None
    assert len(found) <= MAX_LENGTH
    assert found != bucket_of(many, cost_inputs(many), fields | {"number_07": 2})
    assert bucket_of(schema({"prompt": {"type": "string"}}), (), {}) is None
