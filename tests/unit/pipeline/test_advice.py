"""The advice of messages can be followed: all of it that leads to a new generation."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from onceflow.errors import NEW_GENERATION, CorruptionError
from onceflow.protocol.ledger import HeadEntry

ROOT = Path(__file__).parents[3]
SOURCES = [*(ROOT / "service").rglob("*.py"), *(ROOT / "connectors").rglob("*.py")]
OPTION = "--new-generation --reason"
WORDS = "new generation"


def messages() -> list[tuple[str, str]]:
    """Place and text of every string of the product except docstrings."""
    found = []
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        found += [
            (f"{path.relative_to(ROOT)}:{node.lineno}", node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docs
        ]
    return found


def test_whoever_is_told_to_start_a_new_generation_is_told_how() -> None:
    """By one text, which names the empty checkpoint and the option."""
    told = [(place, text) for place, text in messages() if WORDS in text]
    assert NEW_GENERATION in [text for _, text in told]
    assert [
        place
        for place, text in told
        if text != NEW_GENERATION and OPTION not in text and "start a" in text
    ] == []


def test_the_text_names_what_the_comparison_asks_for() -> None:
    """`compare` takes the remedy only where nothing is planned: `test_remedies.py`."""
    assert "empty directory as `checkpoint`" in NEW_GENERATION
    assert f"`{OPTION} ...`" in NEW_GENERATION


def test_an_unreadable_entry_is_not_said_to_be_rebuilt_where_it_stands() -> None:
    """`ledger rebuild` reads `head` before anything else, so it would stop at the same entry."""
    with pytest.raises(CorruptionError) as caught:
        HeadEntry.from_json(b"{}")
    assert "delete the topic, and run `onceflow ledger rebuild FILE --reason ...`" in str(
        caught.value
    )
