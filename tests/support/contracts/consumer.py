"""Contract of every flavour of the consumer. Subclasses provide a Kafka.

Nothing is awaited that must *not* happen: a last record is written instead, and the test shows that
exactly this one comes next.
"""

from __future__ import annotations

import pytest

from onceflow.errors import (
    AbortableError,
    ConfigError,
    CorruptionError,
    InvariantError,
    RecordError,
)
from onceflow.protocol.record import HEADER_NAME, Flag, RecordHeader
from onceflow_connectors.consumer import Hooks, OnFault, OnForeign, Position, Rules
from tests.support.contracts.consumer_refusals import Refusals
from tests.support.contracts.consumer_steps import (
    ConsumerKafka,
    Notes,
    Written,
    enter,
    expect,
    expect_error,
    sequenced,
    settle,
    take,
    values,
)


class ConsumerContract(Refusals):
    """Collected through subclasses, each with its own fixture `kafka`."""

    # Delivery

    def test_records_come_whole_and_in_order(self, kafka: ConsumerKafka, topic: str) -> None:
        kafka.write(topic, sequenced(1, 2, 3))
        with kafka.consumer([topic], topic) as records:
            got = take(records, 3)
            assert values(got) == ["0/1", "0/2", "0/3"]
            assert [(r.topic, r.partition, r.offset) for r in got] == [
                (topic, 0, i) for i in range(3)
            ]
            assert [name for name, _ in got[0].headers] == [HEADER_NAME]
            assert got[2].header == RecordHeader(Flag(0), 1, 1, 7, 0, 3)
            assert got[0].timestamp_ms > 0
            assert records.assignment() == [(topic, 0)]
            assert records.counters.delivered == 3

    def test_many_records_are_read_as_the_sink_compresses_them(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(*range(1, 501)))
        with kafka.consumer([topic], topic) as records:
            assert values(take(records, 500)) == [f"0/{n}" for n in range(1, 501)]

    def test_iteration_yields_the_same_records_as_polling(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2))
        with kafka.consumer([topic], topic) as records:
            stream = iter(records)
            assert values([next(stream), next(stream)]) == ["0/1", "0/2"]

    def test_each_partition_keeps_its_own_sequence(self, kafka: ConsumerKafka, name: str) -> None:
        kafka.create_topic(name, 2)
        kafka.write(name, sequenced(1, 2, partition=0) + sequenced(1, 2, partition=1))
        with kafka.consumer([name], name) as records:
            got = take(records, 4)
        for partition in (0, 1):
            mine = [record for record in got if record.partition == partition]
            assert values(mine) == [f"{partition}/1", f"{partition}/2"]

    def test_an_empty_topic_yields_nothing_and_no_error(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        with kafka.consumer([topic], topic) as records:
            assert records.poll(0.0) is None
            kafka.write(topic, sequenced(1))
            expect(records, "0/1")

    # Repeats, gaps, divergences

    def test_sequences_written_again_are_discarded_and_counted(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2, 3) + sequenced(1, 2, 3) + sequenced(2, 3, 4))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1", "0/2", "0/3", "0/4")
            assert records.counters.discarded == 5

    def test_a_missing_record_is_an_error_that_stays(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2, 4, 5))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1", "0/2")
            expect_error(records, CorruptionError, f"{topic}[0]@2")
            expect_error(records, CorruptionError, "expected sequence 3; found sequence 4")
            records.commit()
        with kafka.consumer([topic], topic) as records:
            expect_error(records, CorruptionError, "expected sequence 3; found sequence 4")

    def test_a_tolerated_gap_is_reported_before_the_record(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 5, 6))
        notes = Notes()
        rules = Rules(gap=OnFault.REPORT)
        with kafka.consumer([topic], topic, rules, notes.hooks()) as records:
            expect(records, "0/1", "0/5", "0/6")
            assert records.counters.gaps == 1
        assert [(g.first_missing, g.last_missing, g.record.offset) for g in notes.gaps] == [
            (2, 4, 1)
        ]

    def test_a_batch_written_again_with_other_content_is_an_error(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2, plan_tag=7) + sequenced(1, 2, plan_tag=8))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1", "0/2")
            expect_error(records, CorruptionError, "written twice with different content")
            expect_error(records, CorruptionError, "plan tag 00000008")

    def test_a_tolerated_divergence_is_reported_and_changes_nothing(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2) + sequenced(2, plan_tag=8) + sequenced(3))
        notes = Notes()
        rules = Rules(divergence=OnFault.REPORT)
        with kafka.consumer([topic], topic, rules, notes.hooks()) as records:
            expect(records, "0/1", "0/2", "0/2", "0/3")
            assert records.counters.divergences == 1
        assert [(d.record.offset, d.high_water) for d in notes.divergences] == [(2, 2)]

    def test_a_new_generation_is_announced_and_goes_on(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, batch_id=9) + sequenced(2, batch_id=0, generation=2))
        notes = Notes()
        with kafka.consumer([topic], topic, hooks=notes.hooks()) as records:
            expect(records, "0/1", "0/2")
        assert [(g.previous, g.current, g.record.offset) for g in notes.generations] == [(1, 2, 1)]

    def test_pipelines_in_one_topic_are_kept_apart(self, kafka: ConsumerKafka, topic: str) -> None:
        one, other = sequenced(1, 2, tag=1), sequenced(1, 2, tag=2, plan_tag=9)
        kafka.write(topic, [*one, *other, *one, *sequenced(3, tag=2, plan_tag=9)])
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1", "0/2", "0/1", "0/2", "0/3")
            assert records.counters.discarded == 2

    # Records that are not ours

    def test_a_foreign_record_is_refused_by_default(self, kafka: ConsumerKafka, topic: str) -> None:
        kafka.write(topic, [*sequenced(1), Written(b"alien")])
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1")
            expect_error(records, RecordError, f"without the header of Onceflow: {topic}[0]@1")

    @pytest.mark.parametrize(
        ("choice", "delivered"),
        [(OnForeign.DELIVER, ["0/1", "alien", "0/2"]), (OnForeign.DROP, ["0/1", "0/2"])],
    )
    def test_foreign_records_are_delivered_or_dropped_as_asked(
        self, kafka: ConsumerKafka, topic: str, choice: OnForeign, delivered: list[str]
    ) -> None:
        kafka.write(topic, [*sequenced(1), Written(b"alien"), *sequenced(2)])
        with kafka.consumer([topic], topic, Rules(foreign=choice)) as records:
            expect(records, *delivered)
            assert records.counters.foreign == 1

    def test_a_header_of_an_unknown_version_names_the_record(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, [Written(b"future", bytes([2]) + bytes(31))])
        with kafka.consumer([topic], topic) as records:
            expect_error(
                records, CorruptionError, f"record header: {topic}[0]@0; expected version 1"
            )

    def test_aborted_transactions_are_invisible(self, kafka: ConsumerKafka, topic: str) -> None:
        kafka.write(topic, sequenced(1))
        kafka.write_aborted(topic, sequenced(2, 3, plan_tag=8))
        kafka.write(topic, sequenced(2))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1", "0/2")
            assert records.counters.divergences == 0

    # Positions

    def test_position_and_filter_are_committed_as_one(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2, 3))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1", "0/2", "0/3")
            position = records.position(topic, 0)
            records.commit()
        assert kafka.committed(topic, topic, 0) == position
        kafka.write(topic, sequenced(2, 3) + sequenced(4))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/4")
            assert records.counters.discarded == 2

    def test_only_what_was_not_committed_comes_again(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2, 3, 4))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1", "0/2")
            records.commit()
            expect(records, "0/3", "0/4")
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/3", "0/4")

    def test_leaving_commits_nothing(self, kafka: ConsumerKafka, topic: str) -> None:
        kafka.write(topic, sequenced(1))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1")
        assert kafka.committed(topic, topic, 0) is None

    def test_a_consumer_that_is_entered_again_begins_where_it_is_stored(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2, 3))
        consumer = kafka.consumer([topic], topic)
        with consumer:
            expect(consumer, "0/1")
            consumer.commit()
            expect(consumer, "0/2")
        with consumer:
            expect(consumer, "0/2", "0/3")

    def test_a_commit_with_nothing_new_is_harmless(self, kafka: ConsumerKafka, topic: str) -> None:
        with kafka.consumer([topic], topic) as records:
            records.commit()
            kafka.write(topic, sequenced(1))
            expect(records, "0/1")
            records.commit()
            records.commit()

    def test_positions_of_the_user_go_before_those_of_the_group(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2, 3))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1")
            mine = records.position(topic, 0)
            expect(records, "0/2", "0/3")
            records.commit()
        kafka.write(topic, sequenced(1, 4))
        with kafka.consumer([topic], topic, hooks=Hooks(load_position=lambda *_: mine)) as records:
            expect(records, "0/2", "0/3", "0/4")
        with kafka.consumer([topic], topic, hooks=Hooks(load_position=lambda *_: None)) as records:
            expect(records, "0/1", "0/2", "0/3", "0/4")

    def test_seeking_back_yields_only_news(self, kafka: ConsumerKafka, topic: str) -> None:
        kafka.write(topic, sequenced(1, 2, 3))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1", "0/2", "0/3")
            records.seek(topic, 0, 0)
            kafka.write(topic, sequenced(4))
            expect(records, "0/4")
            assert records.counters.discarded == 3

    def test_a_committed_seek_back_forgets_nothing(self, kafka: ConsumerKafka, topic: str) -> None:
        kafka.write(topic, sequenced(1, 2, 3))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1", "0/2", "0/3")
            records.seek(topic, 0, 1)
            records.commit()
        kafka.write(topic, sequenced(4))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/4")
            assert records.counters.discarded == 2

    def test_seeking_forward_is_a_gap(self, kafka: ConsumerKafka, topic: str) -> None:
        kafka.write(topic, sequenced(1, 2, 3, 4))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1")
            records.seek(topic, 0, 3)
            expect_error(records, CorruptionError, "expected sequence 2; found sequence 4")

    def test_a_partition_that_was_not_read_yet_has_no_position(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        with kafka.consumer([topic], topic) as records:
            settle(records, partitions=1)
            with pytest.raises(InvariantError, match="nothing was read yet"):
                records.position(topic, 0)

    def test_partitions_of_others_have_no_position(self, kafka: ConsumerKafka, topic: str) -> None:
        with kafka.consumer([topic], topic) as records:
            with pytest.raises(InvariantError, match="does not hold the partition"):
                records.position(topic, 5)
            with pytest.raises(InvariantError, match="does not hold the partition"):
                records.seek(topic, 5, 0)

    # What is left of a topic

    def test_a_new_group_starts_where_retention_left_the_topic(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2, 3, 4))
        kafka.delete_before(topic, 0, 2)
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/3", "0/4")

    def test_records_that_retention_took_from_a_reader_are_a_gap(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2, 3, 4))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1")
            records.commit()
        kafka.delete_before(topic, 0, 3)
        with kafka.consumer([topic], topic) as records:
            expect_error(records, CorruptionError, "expected sequence 2; found sequence 4")

    def test_a_topic_created_again_is_not_taken_for_the_old_one(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        """Kafka forgets a group's offsets along with the topic; the user's own stay."""
        kafka.write(topic, sequenced(1, 2, 3))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1", "0/2", "0/3")
            mine = records.position(topic, 0)
        kafka.recreate_topic(topic, 1)
        kafka.write(topic, sequenced(1))
        with kafka.consumer([topic], topic, hooks=Hooks(load_position=lambda *_: mine)) as records:
            expect_error(records, CorruptionError, "expected offset 3 or later; found offset 0")

    # Groups

    def test_the_group_of_another_topic_is_refused(
        self, kafka: ConsumerKafka, topic: str, name: str
    ) -> None:
        other = f"{name}-other"
        kafka.create_topic(other, 1)
        kafka.commit_by_another(name, Position(other, 0, 0, ""))
        with pytest.raises(ConfigError, match=f"belongs to another topic: {name}.*{other}"):
            enter(kafka.consumer([topic], name))
        with kafka.consumer([topic, other], name):
            pass  # a group may read more than before

    def test_the_offset_of_another_program_is_refused(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2))
        kafka.commit_by_another(topic, Position(topic, 0, 1, "consumed by app-7"))
        with kafka.consumer([topic], topic) as records:
            expect_error(records, ConfigError, f"committed by another program: {topic}[0]")

    def test_an_offset_without_state_is_refused_unless_told_otherwise(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2, 3))
        kafka.commit_by_another(topic, Position(topic, 0, 1, ""))
        with kafka.consumer([topic], topic) as records:
            expect_error(records, ConfigError, "has no state of an Onceflow consumer")
        with kafka.consumer([topic], topic, Rules(bare_offset=OnFault.REPORT)) as records:
            expect(records, "0/2", "0/3")

    def test_an_offset_without_state_at_the_start_of_the_topic_is_a_fresh_start(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2, 3))
        kafka.delete_before(topic, 0, 1)
        kafka.commit_by_another(topic, Position(topic, 0, 1, ""))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/2", "0/3")

    def test_a_group_that_lost_its_offsets_is_refused_if_told(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        """It looks like a new group to a reader, so the first start needs the default rule."""
        strict = Rules(missing_offset=OnFault.RAISE)
        with kafka.consumer([topic], topic, rules=strict):
            pass  # Of an empty topic nothing can be repeated.
        kafka.write(topic, sequenced(1, 2))
        with pytest.raises(ConfigError, match=r"offsets\.retention\.minutes"):
            enter(kafka.consumer([topic], topic, rules=strict))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1", "0/2")
            records.commit()
        kafka.write(topic, sequenced(3))
        with kafka.consumer([topic], topic, rules=strict) as records:
            expect(records, "0/3")
        kafka.forget_offsets(topic)
        with pytest.raises(ConfigError, match=topic):
            enter(kafka.consumer([topic], topic, rules=strict))
        own = Hooks(load_position=lambda *_: None)
        with kafka.consumer([topic], topic, rules=strict, hooks=own) as records:
            expect(records, "0/1", "0/2", "0/3")

    def test_two_members_deliver_each_record_once(self, kafka: ConsumerKafka, name: str) -> None:
        kafka.create_topic(name, 4)
        kafka.write(name, [w for p in range(4) for w in sequenced(1, 2, partition=p)])
        with kafka.consumer([name], name) as one:
            early = take(one, 8)
            one.commit()
            with kafka.consumer([name], name) as other:
                assert settle(one, other, partitions=4) == []
                kafka.write(name, [w for p in range(4) for w in sequenced(3, partition=p)])
                late = take(one, len(one.assignment())) + take(other, len(other.assignment()))
                assert one.counters.discarded == other.counters.discarded == 0
        assert sorted(values(early + late)) == [f"{p}/{s}" for p in range(4) for s in (1, 2, 3)]

    def test_members_settle_although_one_of_them_hardly_polls(
        self, kafka: ConsumerKafka, name: str
    ) -> None:
        """Nearly every answer to it comes between two of its polls."""
        kafka.create_topic(name, 2)
        with kafka.consumer([name], name) as idle, kafka.consumer([name], name) as busy:
            assert settle(idle, busy, partitions=2, polls_s=(0.001, 0.2)) == []

    def test_a_partition_that_stays_over_a_rebalance_repeats_nothing(
        self, kafka: ConsumerKafka, name: str
    ) -> None:
        kafka.create_topic(name, 2)
        kafka.write(name, sequenced(1, partition=0) + sequenced(1, partition=1))
        notes = Notes()
        with kafka.consumer([name], name, hooks=notes.hooks()) as one:
            take(one, 2)
            one.commit()
            kafka.write(name, sequenced(2, partition=0) + sequenced(2, partition=1))
            take(one, 2)  # these are not committed
            with kafka.consumer([name], name) as other:
                again = settle(one, other, partitions=2)
                [kept], [moved] = one.assignment(), other.assignment()
                assert notes.revoked == [moved]
                again += take(other, 1 - len(again))
                assert values(again) == [f"{moved[1]}/2"]
                kafka.write(name, sequenced(3, partition=kept[1]))
                expect(one, f"{kept[1]}/3")

    def test_a_look_up_that_fails_during_an_assignment_is_made_again(
        self, kafka: ConsumerKafka, name: str
    ) -> None:
        """Nothing is delivered before every partition has its place."""
        kafka.create_topic(name, 2)
        kafka.write(name, sequenced(1, 2) + sequenced(1, 2, partition=1))
        failures = [ConnectionError("the database is away")] * 2

        def load(_: str, partition: int) -> Position | None:
            if partition == 1 and failures:
                raise failures.pop()
            return None

        with kafka.consumer([name], name, hooks=Hooks(load_position=load)) as records:
            for _ in range(2):
                with pytest.raises(ConnectionError):
                    take(records, 1)
            found = values(take(records, 4))
        assert sorted(found) == ["0/1", "0/2", "1/1", "1/2"]

    def test_an_expelled_member_cannot_commit_and_reads_again_what_it_had_not(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, 2))
        notes = Notes()
        with kafka.consumer([topic], topic, hooks=notes.hooks()) as records:
            expect(records, "0/1")
            records.commit()
            expect(records, "0/2")
            kafka.expel_all(topic)
            with pytest.raises(AbortableError):
                records.commit()
            expect(records, "0/2")
            assert notes.revoked == [(topic, 0)]
            records.commit()
