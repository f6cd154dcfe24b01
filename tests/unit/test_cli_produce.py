"""From lines to records, without a broker."""

from __future__ import annotations

import pytest

from onceflow.cli.produce import keyed, numbered
from onceflow.errors import RecordError


def test_lines_keep_their_numbers_and_lose_their_ends() -> None:
    assert list(numbered([b"a\n", b"\n", b"b\r\n", b"c"])) == [(1, b"a"), (3, b"b"), (4, b"c")]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b'{"user": "ann"}', b"ann"),
        (b'{"user": 5}', b"5"),
        (b'{"user": null}', b"null"),
        (b'{"user": {"id": 1}}', b'{"id": 1}'),
    ],
)
def test_a_key_is_text_as_it_stands_and_json_otherwise(line: bytes, key: bytes) -> None:
    assert keyed(1, line, "user") == (key, line)


def test_without_a_key_the_line_is_the_record() -> None:
    assert keyed(1, b"not json", None) == (None, b"not json")


@pytest.mark.parametrize("line", [b"{}", b"[1]", b"5", b"not json", b"\xff"])
def test_a_line_without_the_key_is_named(line: bytes) -> None:
    with pytest.raises(RecordError, match="a line has no key: line 7"):
        keyed(7, line, "user")
