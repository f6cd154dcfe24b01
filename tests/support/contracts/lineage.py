"""How every flavour of the consumer must treat a pipeline that began again at sequence 1."""

from __future__ import annotations

import zlib

from onceflow.errors import LineageError
from onceflow_connectors.consumer import OnFault, Rules
from tests.support.contracts.consumer_steps import (
    ConsumerKafka,
    Notes,
    expect,
    expect_error,
    sequenced,
)


class LineageContract:
    """Collected with `ConsumerContract`, whose fixtures it uses."""

    def test_a_pipeline_that_began_again_is_named_and_nothing_of_it_is_discarded(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.create_topic(f"onceflow.ledger.{topic}", 1)
        tag, other = zlib.crc32(topic.encode()), 1
        kafka.write(topic, sequenced(1, 2, 3, tag=tag, lineage=5) + sequenced(1, tag=other))
        kafka.write(topic, sequenced(1, 2, 3, 4, tag=tag, plan_tag=9, lineage=6))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1", "0/2", "0/3", "0/1")
            expect_error(records, LineageError, "began again at sequence 1")
            expect_error(
                records,
                LineageError,
                f"{topic}[0]@4, pipeline {topic}; expected sequence 4 of lineage 5;"
                " found sequence 1 of lineage 6",
            )
            records.commit()
            assert records.counters.discarded == 0
        notes = Notes()
        rules = Rules(new_lineage=OnFault.REPORT)
        with kafka.consumer([topic], topic, rules, notes.hooks()) as records:
            expect(records, "0/1", "0/2")
            records.commit()
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/3", "0/4")
        assert [(n.record.offset, n.high_water) for n in notes.lineages] == [(4, 3)]

    def test_a_pipeline_whose_ledger_nobody_sees_is_told_by_its_tag(
        self, kafka: ConsumerKafka, topic: str
    ) -> None:
        kafka.write(topic, sequenced(1, lineage=5) + sequenced(1, lineage=6))
        with kafka.consumer([topic], topic) as records:
            expect(records, "0/1")
            expect_error(records, LineageError, f"{topic}[0]@1, pipeline tag 00000001;")
