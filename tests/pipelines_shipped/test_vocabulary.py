"""Any text is read as a scene; what has no meaning is told, in order."""

import sys
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def vocabulary(scenes: ModuleType) -> ModuleType:
    return sys.modules["vocabulary"]


@pytest.mark.parametrize(
    ("prompt", "known", "unknown"),
    [
        ("a red house on green hills", ("hills", "house", "red"), ()),
        ("green hills with a red house", ("hills", "house", "red"), ()),
        ("Snowy MOUNTAINS at midnight", ("night", "mountains", "snowy"), ()),
        ("boats and balloons", ("balloon",), ()),
        ("two ships on the ocean", ("sea", "boat"), ("two",)),
        ("castle-like fortress!", ("castle",), ("like",)),
        ("猫 и кот", (), ("猫", "и", "кот")),
        ("!!!", (), ()),
        ("bus bus", (), ("bus",)),
    ],
)
def test_a_prompt_is_read_as_words_of_the_scene(
    vocabulary: ModuleType, prompt: str, known: tuple[str, ...], unknown: tuple[str, ...]
) -> None:
    assert vocabulary.read_prompt(prompt) == (known, unknown)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
def test_any_text_gives_at_most_one_word_of_each_group(vocabulary: ModuleType, prompt: str) -> None:
    known, unknown = vocabulary.read_prompt(prompt)

    assert all(sum(word in words for word in known) <= 1 for words in vocabulary.GROUPS.values())
    assert len(set(unknown)) == len(unknown)
    assert not set(known) & set(unknown)


def test_no_synonym_hides_a_word_or_has_two_meanings(vocabulary: ModuleType) -> None:
    synonyms = [text for texts in vocabulary._SYNONYMS.values() for text in texts]

    assert len(set(synonyms)) == len(synonyms)
    assert not set(synonyms) & set(vocabulary.WORDS)
    assert set(vocabulary._SYNONYMS) <= set(vocabulary.WORDS)
