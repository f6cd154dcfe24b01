"""Contract of every appender. Subclasses provide a Kafka, real or fake."""

from __future__ import annotations

import pytest

from onceflow.contracts.sink import OutputRecord
from onceflow.errors import RecordError
from tests.support.contracts.sink import PARTITIONS, UNWRITABLE, OnAKafka, Scene, record


class AppenderContract(OnAKafka):
    """One test per promise."""

    def test_what_was_appended_can_be_read_at_once_in_order(self, scene: Scene) -> None:
        values = [b"%d" % n for n in range(50)]
        for half in (values[:25], values[25:]):
            records = [record(value) for value in half]
            assert scene.appender.append(scene.output, records, scene.within()) == 25
        scene.assert_seen(*values)
        assert scene.kafka.committed(scene.output) == [record(value) for value in values]
        assert scene.kafka.undecided(scene.output) == 0

    @pytest.mark.parametrize("bad", UNWRITABLE.values(), ids=UNWRITABLE)
    def test_where_an_append_fails_a_beginning_of_each_partition_is_written(
        self, scene: Scene, bad: OutputRecord
    ) -> None:
        before = [record(b"%d" % n, n % PARTITIONS) for n in range(9)]
        records = [*before, bad, *(record(b"after", n) for n in range(PARTITIONS))]
        with pytest.raises(RecordError, match=f"{bad.key!r} to {scene.output}-{bad.partition}"):
            scene.appender.append(scene.output, records, scene.within())
        for partition in range(PARTITIONS):
            wanted = [each for each in records if each.partition == partition and each != bad]
            seen = [r for r in scene.kafka.committed(scene.output) if r.partition == partition]
            assert seen == wanted[: len(seen)]
            if partition == bad.partition:
                assert record(b"after", partition) not in seen
        assert scene.appender.append(scene.output, [record(b"again")], scene.within()) == 1
        assert record(b"again") in scene.kafka.committed(scene.output)

    def test_an_appender_is_fenced_by_nobody(self, scene: Scene) -> None:
        scene.initialise(scene.lane)
        scene.appender.append(scene.output, [record(b"one")], scene.within())
        scene.kafka.appender().append(scene.output, [record(b"another")], scene.within())
        scene.initialise(scene.lane)
        scene.appender.append(scene.output, [record(b"two")], scene.within())
        scene.assert_seen(b"one", b"another", b"two")

    def test_nothing_and_a_close_twice_are_no_faults(self, scene: Scene) -> None:
        assert scene.appender.append(scene.output, [], scene.within()) == 0
        scene.appender.close()
        scene.appender.close()
