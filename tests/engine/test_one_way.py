"""Calls inside the engine go one way, in the types as well: the linter does not look at imports for types alone."""

from __future__ import annotations

import ast
from pathlib import Path

import holdfast.engine


def test_no_module_of_the_engine_imports_another_one_for_its_types_alone() -> None:
    hidden = [
        f"{module.name}: {ast.unparse(statement)}"
        for module in Path(holdfast.engine.__path__[0]).glob("*.py")
        for block in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("holdfast.engine")
    ]
    assert hidden == []
