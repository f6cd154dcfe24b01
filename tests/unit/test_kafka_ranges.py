"""Which offsets a batch of the Kafka source reads, seen from the positions around it."""

from __future__ import annotations

from onceflow_connectors.kafka.position import ranges, splits

FIRST = {"clicks": {"id": "a", "partitions": {"0": 300}, "starts": {"0": 100}}}
"""The position after the first batch: it names where its partition entered."""


def test_the_first_batch_begins_where_it_says() -> None:
    assert ranges(None, FIRST) == {"clicks": {0: (100, 300)}}


def test_a_batch_that_reads_nothing_new_has_empty_ranges_and_no_splits() -> None:
    """Spark runs such batches to close windows; their position is that of the batch before."""
    assert ranges(FIRST, FIRST) == {"clicks": {0: (300, 300)}}
    assert splits(FIRST, FIRST) == []
