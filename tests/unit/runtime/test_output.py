"""Values that are added to rows after Spark has computed them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.protocol.identity import revision_of
from onceflow.runtime.records.output import OutputFormat, encode_collected
from onceflow.runtime.records.rows import KEY_COLUMN, VALUE_COLUMN

REVISION = (3 << 32) + 7


def encoded(kind: str, values: list[bytes], name: str | None = "version") -> list[bytes]:
    table = pa.table({KEY_COLUMN: pa.array([b"k"] * len(values)), VALUE_COLUMN: pa.array(values)})
    output = OutputFormat(kind, "k", None, lambda names: names, None, name)
    found = encode_collected(table, output, REVISION)
    assert found.column_names == table.column_names
    rows: list[bytes] = found.column(VALUE_COLUMN).to_pylist()
    return rows


@given(st.dictionaries(st.text(min_size=1), st.integers() | st.text(), min_size=1), st.text())
def test_a_json_row_has_its_revision_last(row: dict[str, Any], name: str) -> None:
    (found,) = encoded("json", [json.dumps(row, separators=(",", ":")).encode()], name + "!")
    pairs = json.loads(found, object_pairs_hook=list)
    assert pairs == [*row.items(), (name + "!", REVISION)]


def test_a_line_of_csv_has_its_revision_last() -> None:
    assert encoded("csv", [b"a,1", b'"x,y",'], "v") == [b"a,1,12884901895", b'"x,y",,12884901895']


def test_an_avro_row_has_its_revision_before_it_is_encoded() -> None:
    table = pa.table({KEY_COLUMN: [b"k"], "__row": [{"device": "a"}]})
    output = OutputFormat(
        "avro", "k", None, lambda names: names, lambda rows: [json.dumps(rows).encode()], "v"
    )
    (found,) = encode_collected(table, output, REVISION).column(VALUE_COLUMN).to_pylist()
    assert json.loads(found) == [{"device": "a", "v": REVISION}]


@pytest.mark.parametrize("kind", ["json", "csv", "text", "binary"])
def test_without_a_name_nothing_is_added(kind: str) -> None:
    assert encoded(kind, [b"anything"], None) == [b"anything"]


@given(st.tuples(st.integers(1, 2**20), st.integers(0, 2**32 - 1)), st.data())
def test_revisions_rise_with_batches_and_generations(now: tuple[int, int], data: Any) -> None:
    before = data.draw(st.tuples(st.integers(1, 2**20), st.integers(0, 2**32 - 1)))
    assert (revision_of(*before) < revision_of(*now)) == (before < now)
    assert int(float(revision_of(*now))) == revision_of(*now)
