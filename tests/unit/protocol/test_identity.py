"""Names that a successor must arrive at by itself."""

from __future__ import annotations

import re
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.errors import ConfigError
from onceflow.protocol.identity import (
    OWNER_PARTITION,
    BatchKey,
    LaneId,
    Layout,
    check_pipeline_name,
    consumer_group,
    head_partition,
    lane_transactional_id,
    ledger_topic,
    owner_transactional_id,
    pipeline_tag,
)

layouts = st.builds(Layout, st.integers(1, 4), st.integers(1, 5))


def test_names_are_those_of_the_protocol() -> None:
    assert ledger_topic("page-views") == "onceflow.ledger.page-views"
    assert owner_transactional_id("page-views") == "onceflow.page-views.owner"
    assert lane_transactional_id("page-views", LaneId(0, 2)) == "onceflow.page-views.s0.l2"
    assert consumer_group("page-views") == "onceflow.page-views"
    assert pipeline_tag("page-views") == zlib.crc32(b"page-views")


def test_the_owner_shares_no_partition_with_a_head() -> None:
    assert OWNER_PARTITION == 0
    assert [head_partition(slot) for slot in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("name", ["a", "7", "page-views", "a" * 63, "x--y"])
def test_usable_pipeline_names_pass_unchanged(name: str) -> None:
    assert check_pipeline_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "a" * 64, "Page", "page_views", "page.views", "pägé", "a\n", "a b"]
)
def test_unusable_pipeline_names_are_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(name))):
        check_pipeline_name(name)


@given(layouts)
def test_a_layout_lists_each_lane_once(layout: Layout) -> None:
    lanes = list(layout.lane_ids())
    assert len(set(lanes)) == len(lanes) == layout.slots * layout.lanes
    assert max(lanes) == LaneId(layout.slots - 1, layout.lanes - 1)


@given(layouts, layouts)
def test_the_covering_layout_leaves_no_lane_out(one: Layout, other: Layout) -> None:
    covered = set(one.covering(other).lane_ids())
    assert covered >= {*one.lane_ids(), *other.lane_ids()}
    assert one.covering(other) == other.covering(one)


def test_batches_are_ordered_within_their_query() -> None:
    assert BatchKey("q", 2) < BatchKey("q", 10)
