"""The fault matrix names tests that exist, and forgets none."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from tests.faults.matrix import NOT_HERE, ROWS

ROOT = Path(__file__).parents[3]


def functions_of(file: Path) -> set[str]:
    """Every test function of a module, as `FILE::NAME`."""
    module = ast.parse(file.read_text(encoding="utf-8"))
    return {
        f"{file.relative_to(ROOT)}::{node.name}"
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def test_every_row_is_played_by_tests_that_exist() -> None:
    files = {ROOT / test.partition("::")[0] for row in ROWS for test in row.tests}
    existing = {name for file in files if file.is_file() for name in functions_of(file)}

    assert [row.row_id for row in ROWS if not row.tests] == []
    assert [test for row in ROWS for test in row.tests if test not in existing] == []


def test_every_fault_test_belongs_to_a_row() -> None:
    files = sorted((ROOT / "tests" / "faults").glob("test_*.py"))
    named = {test for row in ROWS for test in row.tests}

    assert files
    assert [name for file in files for name in sorted(functions_of(file) - named)] == []


def test_every_row_of_the_research_is_here_or_has_a_reason() -> None:
    numbered = Counter([row.row_id for row in ROWS] + [row.row_id for row in NOT_HERE])

    assert [row_id for row_id, times in numbered.items() if times > 1] == []
    assert [n for n in range(1, 28) if str(n) not in numbered] == []
    assert [row.row_id for row in NOT_HERE if not row.reason] == []
