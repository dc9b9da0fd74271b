"""Rules of the house that a linter cannot see. A rule without a failing test is a wish."""

import ast
import re
import sys
from pathlib import Path

import pytest

from contracts.store import library

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for top in ("contracts", "services", "headrace") for path in (ROOT / top).rglob("*.py"))
LUA = sorted((ROOT / "contracts/store/lua").glob("[a-z]*.lua"))
CHILD = ROOT / "services/gpu_worker/child"
HEAD = ("-- KEYS", "-- ARGV", "-- Reply", "-- Events", "-- Guard")
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc", "base"}


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


@pytest.mark.parametrize("path", LUA, ids=lambda path: path.stem)
def test_a_verb_has_the_standard_head_and_fits_on_a_page(path: Path) -> None:
    lines = path.read_text().splitlines()

    assert lines[0].startswith(f"-- {path.stem}: ")
    heads = [line for line in lines if line.startswith(HEAD)]
    assert [head.split()[1] for head in heads] == [name.split()[1] for name in HEAD]
    assert len(lines) <= 60


def test_every_verb_is_in_the_library_and_knows_no_state_name() -> None:
    assert {path.stem for path in LUA} == set(library.VERBS)
    for path in LUA:
        code = "\n".join(line for line in path.read_text().splitlines() if not line.lstrip().startswith("--"))
        assert not re.search(r"'(queued|scheduled|in_progress|completed|failed|cancelled|expired)'", code), path
        assert not re.search(r"'(SCAN|KEYS|EVAL|PUBLISH)'", code), path


def test_the_child_imports_the_standard_library_only() -> None:
    for path in CHILD.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            siblings = {sibling.stem for sibling in CHILD.glob("*.py")}
            for module in modules:
                top = module.partition(".")[0]
                assert top in sys.stdlib_module_names | siblings, f"{path}: {module}"


def test_the_environment_is_read_only_where_a_process_begins() -> None:
    allowed = {"__main__.py"}
    offenders = [
        path
        for path in SOURCES
        if "os.environ" in path.read_text()
        and path.name not in allowed
        and CHILD not in path.parents
        and ROOT / "headrace" not in path.parents
    ]

    assert names(offenders) == []


def test_nothing_waits_in_a_way_that_may_forget_a_cancel() -> None:
    """Before Python 3.12 asyncio.wait_for does, when it comes as the wait ends; `asyncio.timeout` never does."""
    assert names([path for path in SOURCES if re.search(r"\basyncio\.wait_for\(", path.read_text())]) == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert [path for path in SOURCES if path.stem in FORBIDDEN_NAMES] == []


def test_files_and_functions_stay_readable() -> None:
    long_files = [path for path in SOURCES if len(path.read_text().splitlines()) > 400]
    long_functions = [
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno > 70
    ]

    assert names(long_files) == []
    assert long_functions == []


IMPURE = {"asyncio", "time", "random", "os", "logging", "redis", "aiohttp", "socket", "subprocess", "secrets"}
PURE = [path for path in SOURCES if re.search(r"\bPure\b", ast.get_docstring(ast.parse(path.read_text())) or "")]


def test_a_file_that_calls_itself_pure_reaches_no_clock_no_chance_and_no_io() -> None:
    assert len(PURE) > 20
    offenders = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in PURE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        if module.partition(".")[0] in IMPURE
    ]

    assert offenders == []


def test_nothing_is_unpickled() -> None:
    """Field case 114: whoever can write to the store must not be able to run code."""
    assert [path for path in SOURCES if re.search(r"\b(pickle|marshal|shelve)\b", path.read_text())] == []


def test_every_module_says_what_it_is() -> None:
    empty = [path for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))]

    assert names(empty) == []
