"""Which state can be read, by the names of files; keys as people write them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from onceflow.errors import ConfigError
from onceflow.runtime.state.forms import plain
from onceflow.runtime.state.layout import NEVER, first_version
from onceflow.runtime.state.reader import parse_key


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (["state/0/0/1_a.changelog", "state/0/0/2_b.changelog"], 1),
        (["state/0/0/8_a.changelog", "state/0/0/9_b.zip", "state/0/0/10_c.changelog"], 9),
        (["state/0/0/1_a.changelog", "state/0/0/3_b.changelog"], NEVER),
        (["state/0/0/1_a.changelog", "state/0/0/3_b.zip", "state/0/0/3_b.changelog"], 3),
        (["state/0/0/1_a.changelog", "state/0/1/7_b.zip", "state/0/1/8_b.changelog"], 7),
        (["state/0/0/1_a.changelog", "state/0/1/2_b.changelog"], NEVER),
        (["state/0/_metadata/metadata"], NEVER),
    ],
)
def test_a_store_begins_with_its_first_version_or_a_snapshot(
    names: Sequence[str], first: int
) -> None:
    assert first_version(names) == first


def test_a_key_is_a_text_or_null_for_each_column() -> None:
    assert parse_key(["a=1", "b.c=x=y", "d", "e="]) == {"a": "1", "b.c": "x=y", "d": None, "e": ""}


@pytest.mark.parametrize("texts", [["a=1", "a=2"], ["=1"], [""]])
def test_a_key_that_is_none_is_refused(texts: Sequence[str]) -> None:
    with pytest.raises(ConfigError, match="once for each column"):
        parse_key(texts)


def test_values_are_plain() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    value = {"a": [at, Decimal("1.50"), float("nan")], "b": b"\xff", "c": None, "d": True}
    assert plain(value) == {
        "a": ["2026-01-02T00:00:00+00:00", "1.50", "nan"],
        "b": "\\xff",
        "c": None,
        "d": True,
    }
