"""The filter: whatever is read again, each sequence is delivered once; what lacks is noticed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.errors import ConfigError, CorruptionError
from onceflow.protocol.record import Flag, RecordHeader
from onceflow_connectors.consumer.filter import (
    REMEMBERED_BATCHES,
    STATE_BYTES_MAX,
    FilterVerdict,
    PartitionFilter,
)

PIPELINE = 0xFFFFFFFF
LONGEST = 2**64 - 1


def header(
    sequence: int,
    *,
    batch_id: int = 0,
    plan_tag: int = 7,
    generation: int = 1,
    tag: int = PIPELINE,
    lineage: int = 0,
) -> RecordHeader:
    return RecordHeader(Flag(0), tag, generation, plan_tag, batch_id, sequence, lineage)


def offer(filter_: PartitionFilter, one: RecordHeader) -> FilterVerdict:
    """A consumer that tolerates nothing."""
    track = filter_.track(one.pipeline_tag)
    verdict = track.judge(one)
    if verdict is FilterVerdict.NEXT:
        track.take(one)
    return verdict


def feed(filter_: PartitionFilter, headers: Iterable[RecordHeader]) -> list[FilterVerdict]:
    return [offer(filter_, one) for one in headers]


@st.composite
def histories(draw: st.DrawFn, min_batches: int = 1, tag: int = PIPELINE) -> list[RecordHeader]:
    """Records of one pipeline in one partition: batches of any size, some in new generations."""
    headers: list[RecordHeader] = []
    generation, batch_id = 1, -1
    for size in draw(st.lists(st.integers(1, 5), min_size=min_batches, max_size=14)):
        if draw(st.integers(0, 4)) == 0:
            generation, batch_id = generation + 1, -1
        batch_id += draw(st.integers(1, 3))
        plan_tag = draw(st.integers(0, 3))
        headers += [
            header(
                len(headers) + i + 1,
                batch_id=batch_id,
                plan_tag=plan_tag,
                generation=generation,
                tag=tag,
            )
            for i in range(size)
        ]
    return headers


@st.composite
def readings(
    draw: st.DrawFn,
) -> tuple[Sequence[RecordHeader], list[tuple[int, int]]]:
    """A history, and ranges of it that are read one after another without skipping anything."""
    history = draw(histories())
    first = draw(st.integers(0, len(history) - 1))
    ranges: list[tuple[int, int]] = []
    reached = first
    for _ in range(draw(st.integers(1, 8))):
        start = draw(st.integers(0, reached))
        end = draw(st.integers(start, len(history)))
        if not ranges:
            start, end = first, max(first + 1, end)
        ranges.append((start, end))
        reached = max(reached, end)
    return history, ranges


@given(readings())
def test_any_replays_seeks_and_restarts_deliver_each_sequence_once_and_in_order(
    reading: tuple[Sequence[RecordHeader], list[tuple[int, int]]],
) -> None:
    history, ranges = reading
    filter_ = PartitionFilter()
    delivered = []
    for start, end in ranges:
        for one in history[start:end]:
            verdict = offer(filter_, one)
            assert verdict in (FilterVerdict.NEXT, FilterVerdict.REPEAT)
            if verdict is FilterVerdict.NEXT:
                delivered.append(one.sequence)
        filter_ = PartitionFilter.from_json(filter_.to_json())
    first, reached = ranges[0][0], max(end for _, end in ranges)
    assert delivered == [one.sequence for one in history[first:reached]]


@given(histories(min_batches=3), st.data())
def test_a_record_removed_anywhere_is_a_gap(
    history: list[RecordHeader], data: st.DataObject
) -> None:
    removed = data.draw(st.integers(1, len(history) - 2))
    verdicts = feed(PartitionFilter(), history[:removed] + history[removed + 1 :])
    assert verdicts[:removed] == [FilterVerdict.NEXT] * removed
    assert set(verdicts[removed:]) == {FilterVerdict.GAP}


@given(histories(), st.data())
def test_an_earlier_record_written_again_anywhere_is_a_repeat(
    history: list[RecordHeader], data: st.DataObject
) -> None:
    place = data.draw(st.integers(1, len(history)))
    repeated = data.draw(st.integers(0, place - 1))
    verdicts = feed(PartitionFilter(), [*history[:place], history[repeated], *history[place:]])
    assert [i for i, v in enumerate(verdicts) if v is not FilterVerdict.NEXT] == [place]
    assert verdicts[place] is FilterVerdict.REPEAT


@given(histories(tag=1), histories(tag=2), st.randoms(use_true_random=False))
def test_pipelines_in_one_topic_do_not_disturb_each_other(
    one: list[RecordHeader], other: list[RecordHeader], random: Random
) -> None:
    turns = [0] * len(one) + [1] * len(other)
    random.shuffle(turns)
    sides = (iter(one), iter(other))
    filter_ = PartitionFilter()
    assert set(feed(filter_, (next(sides[turn]) for turn in turns))) == {FilterVerdict.NEXT}
    assert filter_.track(1).high_water == len(one)
    assert filter_.track(2).high_water == len(other)


@given(histories(), st.data())
def test_a_remembered_batch_with_another_plan_is_a_divergence(
    history: list[RecordHeader], data: st.DataObject
) -> None:
    filter_ = PartitionFilter()
    feed(filter_, history)
    batches = sorted({(one.generation, one.batch_id) for one in history})[-REMEMBERED_BATCHES:]
    again = data.draw(
        st.sampled_from([h for h in history if (h.generation, h.batch_id) in batches])
    )
    other = header(
        again.sequence,
        batch_id=again.batch_id,
        plan_tag=again.plan_tag + 1,
        generation=again.generation,
    )
    assert offer(filter_, again) is FilterVerdict.REPEAT
    assert offer(filter_, other) is FilterVerdict.DIVERGENCE
    assert offer(filter_, again) is FilterVerdict.REPEAT  # the first version stays the true one


def test_a_batch_that_goes_on_under_another_plan_is_a_divergence() -> None:
    filter_ = PartitionFilter()
    feed(filter_, [header(1, plan_tag=7), header(2, plan_tag=7)])
    assert offer(filter_, header(3, plan_tag=8)) is FilterVerdict.DIVERGENCE
    assert offer(filter_, header(3, plan_tag=7)) is FilterVerdict.NEXT


def test_a_sequence_that_comes_from_another_batch_is_a_divergence() -> None:
    filter_ = PartitionFilter()
    feed(filter_, [header(1, batch_id=1), header(2, batch_id=2)])
    assert offer(filter_, header(1, batch_id=3)) is FilterVerdict.DIVERGENCE


@pytest.mark.parametrize("late", [header(3, batch_id=4), header(3, batch_id=9, generation=1)])
def test_news_from_an_older_batch_is_a_divergence(late: RecordHeader) -> None:
    filter_ = PartitionFilter()
    feed(filter_, [header(1, batch_id=5, generation=2), header(2, batch_id=6, generation=2)])
    assert offer(filter_, late) is FilterVerdict.DIVERGENCE


def test_batches_older_than_the_memory_are_discarded_unchecked() -> None:
    filter_ = PartitionFilter()
    feed(filter_, (header(i + 1, batch_id=i) for i in range(REMEMBERED_BATCHES + 1)))
    assert offer(filter_, header(1, batch_id=0, plan_tag=99)) is FilterVerdict.REPEAT
    assert offer(filter_, header(2, batch_id=1, plan_tag=99)) is FilterVerdict.DIVERGENCE


def test_the_first_record_ever_seen_is_delivered_whatever_its_sequence() -> None:
    filter_ = PartitionFilter()
    assert feed(filter_, [header(41), header(42), header(41), header(40)]) == [
        FilterVerdict.NEXT,
        FilterVerdict.NEXT,
        FilterVerdict.REPEAT,
        FilterVerdict.REPEAT,
    ]


def test_sequences_go_on_over_generations() -> None:
    filter_ = PartitionFilter()
    feed(filter_, [header(1, batch_id=40)])
    assert filter_.track(PIPELINE).generation == 1
    assert offer(filter_, header(2, batch_id=0, generation=2)) is FilterVerdict.NEXT
    assert filter_.track(PIPELINE).generation == 2


def test_records_missed_in_a_tolerated_gap_contradict_nothing_when_they_turn_up() -> None:
    filter_ = PartitionFilter()
    history = [header(i + 1, batch_id=i // 2) for i in range(8)]
    feed(filter_, history[:1])
    assert filter_.track(PIPELINE).judge(history[5]) is FilterVerdict.GAP
    filter_.track(PIPELINE).take(history[5])
    assert feed(filter_, history) == [FilterVerdict.REPEAT] * 6 + [FilterVerdict.NEXT] * 2


def test_a_track_that_saw_nothing_has_no_generation() -> None:
    track = PartitionFilter().track(PIPELINE)
    assert (track.high_water, track.generation, bool(track)) == (0, None, False)


def test_judging_alone_leaves_nothing_in_the_state() -> None:
    filter_ = PartitionFilter()
    filter_.track(PIPELINE).judge(header(5))
    assert filter_.to_json() == PartitionFilter().to_json()


def test_the_state_is_written_as_published() -> None:
    filter_ = PartitionFilter()
    feed(filter_, [header(1, tag=9), header(2, tag=9), header(3, batch_id=1, plan_tag=8, tag=9)])
    assert filter_.to_json() == '{"onceflow":1,"pipelines":{"9":[[1,2,1,0,7],[3,3,1,1,8]]}}'


@given(st.integers(1, 70))
def test_the_state_fits_into_an_offset_commit_and_keeps_every_high_water(pipelines: int) -> None:
    filter_ = PartitionFilter()
    for tag in range(pipelines):
        for i in range(REMEMBERED_BATCHES):
            offer(filter_, header(10**6 + i, batch_id=i, tag=PIPELINE - tag, lineage=65535))
    text = filter_.to_json()
    assert len(text) <= STATE_BYTES_MAX
    loaded = PartitionFilter.from_json(text)
    for tag in range(pipelines):
        assert loaded.track(PIPELINE - tag).lineage == 65535
        assert loaded.track(PIPELINE - tag).high_water == 10**6 + REMEMBERED_BATCHES - 1


def test_the_longest_numbers_of_one_pipeline_fit_with_all_that_is_remembered() -> None:
    filter_ = PartitionFilter()
    for i in range(REMEMBERED_BATCHES):
        n = LONGEST - REMEMBERED_BATCHES + i
        one = header(n, batch_id=n, plan_tag=PIPELINE, generation=PIPELINE, lineage=65535)
        offer(filter_, one)
    assert len(json.loads(filter_.to_json())["pipelines"][str(PIPELINE)]) == REMEMBERED_BATCHES


@given(histories(), histories(), st.integers(0, 1), st.data())
def test_nothing_of_a_pipeline_that_began_again_is_taken_for_a_repeat(
    before: list[RecordHeader], after: list[RecordHeader], told: int, data: st.DataObject
) -> None:
    """Whatever the two have in common: batch ids, plan tags, generations, lengths."""
    filter_ = PartitionFilter()
    feed(filter_, (replace(one, lineage=told) for one in before))
    again = [replace(one, lineage=2) for one in after]
    one = data.draw(st.sampled_from(again))
    track = PartitionFilter.from_json(filter_.to_json()).track(PIPELINE)
    if told:
        assert {track.judge(one) for one in again} == {FilterVerdict.NEW_LINEAGE}
    elif one not in (replace(known, lineage=2) for known in before):
        assert track.judge(one) is not FilterVerdict.REPEAT
    track.forget()
    for number, one in enumerate(again, start=1):
        assert track.judge(one) is FilterVerdict.NEXT
        track.take(one)
        assert (track.high_water, track.lineage) == (number, 2)


@given(histories(min_batches=2), st.data())
def test_a_state_without_lineages_goes_on_in_the_pipelines_own(
    history: list[RecordHeader], data: st.DataObject
) -> None:
    """The consumer of an older version has read the beginning, and wrote none."""
    told = [replace(one, lineage=9) for one in history]
    place = data.draw(st.integers(1, len(told)))
    filter_ = PartitionFilter()
    feed(filter_, history[:place])
    loaded = PartitionFilter.from_json(filter_.to_json())
    newest = [one for one in told[:place] if one.batch_id == told[place - 1].batch_id]
    assert set(feed(loaded, newest[-1:])) == {FilterVerdict.REPEAT}
    assert set(feed(loaded, told[place:])) <= {FilterVerdict.NEXT}
    assert loaded.track(PIPELINE).lineage == (9 if told[place:] else 0)


def test_a_driver_of_an_older_version_goes_on_without_a_lineage_and_no_reader_stops() -> None:
    filter_ = PartitionFilter()
    feed(filter_, [header(1, lineage=9), header(2, lineage=9)])
    assert feed(filter_, [header(2), header(3), header(4)]) == [
        FilterVerdict.REPEAT,
        FilterVerdict.NEXT,
        FilterVerdict.NEXT,
    ]
    assert filter_.track(PIPELINE).lineage == 9


def test_consumers_of_an_older_version_read_the_state_and_pass_over_lineages() -> None:
    filter_ = PartitionFilter()
    feed(filter_, [header(1, tag=9, lineage=5), header(1, tag=10)])
    fields = json.loads(filter_.to_json())
    assert fields == {
        "onceflow": 1,
        "lineages": [0, 5],
        "pipelines": {"10": [[1, 1, 1, 0, 7]], "9": [[1, 1, 1, 0, 7]]},
    }


def test_more_pipelines_than_fit_are_refused_rather_than_forgotten() -> None:
    filter_ = PartitionFilter()
    for tag in range(200):
        offer(filter_, header(10**6, tag=PIPELINE - tag))
    with pytest.raises(ConfigError, match="200 pipelines; expected positions that fit into 4095"):
        filter_.to_json()


@pytest.mark.parametrize("text", ["{", "[]", "null", "7", '{"seq":1}', "app-1 2026-11-01"])
def test_the_metadata_of_another_program_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="use another consumer group"):
        PartitionFilter.from_json(text)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_a_state_of_another_version_is_refused(version: object) -> None:
    with pytest.raises(CorruptionError, match="upgrade this consumer"):
        PartitionFilter.from_json(json.dumps({"onceflow": version, "pipelines": {}}))


@pytest.mark.parametrize(
    "pipelines",
    [
        None,
        [],
        {"x": []},
        {"1": 5},
        {"1": [5]},
        {"1": [[1, 2, 3, 4]]},
        {"1": [[1, 2, 3, 4, "5"]]},
        {"1": [[1, 2, 3, 4, True]]},
    ],
)
def test_a_damaged_state_is_refused(pipelines: object) -> None:
    with pytest.raises(CorruptionError, match="damaged state"):
        PartitionFilter.from_json(json.dumps({"onceflow": 1, "pipelines": pipelines}))


@pytest.mark.parametrize("lineages", [None, 7, [], [1, 2], ["1"], [True]])
def test_damaged_lineages_are_refused(lineages: object) -> None:
    state = {"onceflow": 1, "pipelines": {"1": [[1, 1, 1, 0, 7]]}, "lineages": lineages}
    with pytest.raises(CorruptionError, match="damaged state"):
        PartitionFilter.from_json(json.dumps(state))


def test_a_state_without_pipelines_key_is_refused() -> None:
    with pytest.raises(CorruptionError, match="damaged state"):
        PartitionFilter.from_json('{"onceflow":1}')
