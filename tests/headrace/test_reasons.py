"""Every command that writes with the admin key takes a reason."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "headrace"
WRITES = {"post", "patch", "delete", "post_and_show"}


def writers() -> Iterator[tuple[str, set[str]]]:
    """Give each outermost function that writes with the admin key, and the names of all that is handed to it."""
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            inside = list(ast.walk(function))
            called = {
                getattr(node.func, "attr", getattr(node.func, "id", ""))
                for node in inside
                if isinstance(node, ast.Call)
            }
            names = {node.id for node in inside if isinstance(node, ast.Name)}
            if called & WRITES and "ADMIN" in names:
                handed = {arg.arg for node in inside if isinstance(node, ast.FunctionDef) for arg in node.args.args}
                yield f"{path.relative_to(ROOT)}:{function.name}", handed


def test_every_command_that_writes_with_the_admin_key_takes_a_reason() -> None:
    found = dict(writers())
    assert {"keys.py:create", "keys.py:revoke", "policy.py:set_", "pausing.py:_switch"} <= found.keys()
    assert [name for name, handed in found.items() if not handed & {"reason", "body"}] == []
