"""Orders: what a file may say, and what the ledger keeps of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from onceflow.pipeline.analysis.ordering import next_order
from onceflow.protocol.compare import CheckpointFacts
from onceflow.protocol.order import ARRIVAL, SORTED, Order, Term, Ties, columns_of
from tests.support.entries import head

names = st.text(st.characters(exclude_characters="`"), min_size=1)
terms = st.builds(Term, names, st.booleans())
orders = st.builds(Order, st.lists(terms, max_size=3).map(tuple), st.sampled_from(Ties))


@given(terms)
def test_every_term_is_read_as_it_is_told(term: Term) -> None:
    assert Term.parse(str(term)) == term


@given(orders)
def test_every_order_survives_the_ledger(order: Order) -> None:
    assert Order.from_json(order.to_json()) == order


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("at", Term("at")),
        (" at  DESC ", Term("at", is_descending=True)),
        ("w.end asc", Term("w.end")),
        ("`how many` desc", Term("how many", is_descending=True)),
        ("`at desc`", Term("at desc")),
        ("desc", Term("desc")),
    ],
)
def test_a_term_is_a_column_and_perhaps_a_direction(text: str, term: Term) -> None:
    assert Term.parse(text) == term


@pytest.mark.parametrize("text", ["", " ", "at desk", "a b", "`at", "at, n", "at desc nulls last"])
def test_anything_else_is_no_term(text: str) -> None:
    with pytest.raises(ValueError, match="no column to order by"):
        Term.parse(text)


def test_what_cannot_be_reproduced_by_arrival_is_ordered_by_content() -> None:
    assert ARRIVAL.by_content() == SORTED
    assert Order((Term("at"),), Ties.ARRIVAL).by_content() == Order((Term("at"),))


def test_a_column_of_several_orders_is_collected_once() -> None:
    at, n = Term("at"), Term("n", is_descending=True)
    assert [*columns_of([Order((at,)), Order((n, Term("at", is_descending=True)))])] == ["at", "n"]


RESULT = StructType([StructField("at", TimestampType()), StructField("n", LongType())])


@pytest.mark.parametrize(
    ("planned", "before", "found"),
    [
        (4, SORTED, ARRIVAL),
        (5, SORTED, None),
        (5, Order((Term("at"), Term("n"))), None),
        (5, Order((Term("gone"),)), ARRIVAL),
    ],
    ids=["nothing is planned", "a batch is planned", "with columns", "of another query"],
)
def test_a_batch_that_is_planned_keeps_its_order(
    planned: int, before: Order, found: Order | None
) -> None:
    seen = replace(head(4, 0, 10), next_order=before)
    facts = CheckpointFacts("q", planned, 4)
    assert next_order(ARRIVAL, RESULT, seen, facts) == found
    assert next_order(ARRIVAL, RESULT, None, facts) == ARRIVAL
