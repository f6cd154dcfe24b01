"""A coroutine as the service: what it gets, and what follows from what it does."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onceflow.columns import parse_columns
from onceflow.enrichment.python_service import PythonService
from onceflow.errors import ConfigError, OutcomeUnknownError

COLUMNS = parse_columns("n BIGINT, tags ARRAY<STRING>")
Ask = Callable[[str], bytes]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Asks a coroutine with this body about `7, ["a"]`."""
    name = f"asked_{tmp_path.name.replace('-', '_')}"

    def asked(body: str, declared: str = "async def") -> bytes:
        (tmp_path / f"{name}.py").write_text(
            f"import asyncio\n{declared} look_up(row):\n    {body}\n"
        )
        service = PythonService(f"{name}:look_up", tmp_path, COLUMNS, 0.05, 100)
        return asyncio.run(service.ask((7, '["a"]')))

    yield asked
    sys.path.remove(str(tmp_path))
    sys.modules.pop(name, None)


def test_it_gets_the_row_and_returns_the_answer(ask: Ask) -> None:
    assert json.loads(ask("return {'of': row, 'n': row['n'] + 1}")) == {
        "of": {"n": 7, "tags": ["a"]},
        "n": 8,
    }


@pytest.mark.parametrize(
    "body", ["raise ConnectionResetError", "raise TimeoutError", "await asyncio.Event().wait()"]
)
def test_what_may_work_later_is_asked_again(ask: Ask, body: str) -> None:
    with pytest.raises(OutcomeUnknownError):
        ask(body)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise ValueError('no such order')", "no such order"),
        ("raise KeyError('secret')", "raised KeyError"),
        ("return {'n': float('nan')}", "not JSON compliant"),
        ("return {'n': object()}", "raised TypeError"),
        ("return 'x' * 100", "at most 100 bytes"),
    ],
)
def test_what_never_works_is_a_refusal(ask: Ask, body: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        ask(body)
    assert "secret" not in str(refused.value)


def test_a_function_that_is_not_a_coroutine_is_refused(ask: Callable[..., bytes]) -> None:
    with pytest.raises(ConfigError) as refused:
        ask("return {}", declared="def")
    assert "not declared by `async def`" in str(refused.value)
