"""What is generated is true: the chart equals TRANSITIONS, the schemas equal the models, every key is documented."""

import re
from pathlib import Path

import pytest

from contracts import publish
from contracts.store import keys

README = publish.README.read_text()


def test_the_state_chart_and_the_event_table_are_those_of_the_code() -> None:
    assert publish.readme(README) == README, "run python -m contracts.publish"


@pytest.mark.parametrize("name", sorted(publish.schemas()))
def test_the_exported_schema_is_that_of_the_model(name: str) -> None:
    assert (publish.SCHEMAS / name).read_bytes() == publish.schemas()[name], "run python -m contracts.publish"


def test_every_key_is_in_the_key_table() -> None:
    source = Path(keys.__file__).read_text()
    for name in re.findall(r'return f"hr:\{\{\{[^}]+\}\}\}:([a-z]+)', source):
        assert f":{name}" in README, name
