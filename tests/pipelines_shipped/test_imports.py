"""Shipped pipelines are written as an outside author would: nothing of Headrace is imported."""

import ast

from tests.pipelines_shipped.conftest import PIPELINES

OURS = {"headrace", "contracts", "services", "tests"}


def test_no_shipped_pipeline_imports_anything_of_ours() -> None:
    files = sorted(PIPELINES.rglob("*.py"))

    imported = {
        (file.name, name.split(".")[0])
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }

    assert len(files) >= 4
    assert not {name for _, name in imported} & OURS
