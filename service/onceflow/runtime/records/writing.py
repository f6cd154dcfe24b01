"""Brings the rows of a batch in order inside the JVM, and writes them there.

No row comes to Python. A batch is collected by the driver if it is small, and else written by many
tasks. The Java package `onceflow.sink` does the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from onceflow.contracts.sink import Transaction
from onceflow.errors import ConfigError
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.protocol.order import Order, Ties
from onceflow.protocol.record import HeaderPacker
from onceflow.runtime.records.rows import KEY_COLUMN, ORDER_COLUMN, PARTITION_COLUMN, VALUE_COLUMN

_ARRIVAL_COLUMN = "__arrival"


@dataclass(frozen=True)
class PartitionDigest:
    """The rows of a batch in one output partition.

    Args:
        count: of its rows.
        last_sequence: of the last one.
        digest: SHA-256 of the rows, as `digest_of` has it, in hexadecimal.
    """

    count: int
    last_sequence: int
    digest: str


@dataclass(frozen=True)
class Numbering:
    """How records continue what is in the topic.

    Args:
        next_sequences: of each partition of the topic.
        headers: of the batch.
    """

    topic: str
    next_sequences: Sequence[int]
    headers: HeaderPacker
    timestamp_ms: int


class BatchRows:
    """The rows of one batch in its order. They can be written several times; the query runs once.

    Args:
        rows: of Java's interface of the same name.
    """

    def __init__(self, spark: SparkSession, rows: Any) -> None:
        self._py4j: Any = spark.sparkContext._gateway  # noqa: SLF001  no public way
        self._sink: Any = jvm_of(spark).onceflow.sink
        self._rows = rows

    def write(
        self, numbering: Numbering, transaction: Transaction, client: Mapping[str, str]
    ) -> Mapping[int, PartitionDigest]:
        """Write them into a transaction, which must not be committed if this raises anything.

        Args:
            numbering: of its records.
            transaction: which this is the first to write to.
            client: settings of Kafka's Java client.

        Returns:
            What each partition got, all of it acknowledged.
        """
        assignment = self._sink.Assignment.toWrite(
            numbering.topic,
            self._longs(numbering.next_sequences),
            numbering.headers.pack(0, 0),
            numbering.timestamp_ms,
            dict(client),
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
        )
        return self._reported(assignment)

    def compare(self, numbering: Numbering) -> Mapping[int, PartitionDigest]:
        """Return what `write` would, and write nothing."""
        sequences = self._longs(numbering.next_sequences)
        return self._reported(self._sink.Assignment.toCompare(numbering.topic, sequences))

    def close(self) -> None:
        """Free their memory, and the files that they were shuffled to."""
        self._rows.close()

    def _reported(self, assignment: Any) -> Mapping[int, PartitionDigest]:
        return {
            each.partition(): PartitionDigest(
                each.count(), each.lastSequence(), bytes(each.digest()).hex()
            )
            for each in self._rows.write(assignment)
        }

    def _longs(self, numbers: Sequence[int]) -> Any:
        longs = self._py4j.new_array(self._py4j.jvm.long, len(numbers))
        for place, number in enumerate(numbers):
            longs[place] = number
        return longs


@contextmanager
def batch_rows(frame: DataFrame, order: Order, writers: int) -> Iterator[BatchRows]:
    """Bring the rows of a batch in order; they are gone at the end of the block.

    Args:
        frame: with columns KEY, VALUE, PARTITION, and those that `order` looks at.
        order: of the batch.
        writers: tasks that write; with 0 of them, the rows go into the driver's memory.
    """
    spark = frame.sparkSession
    sink: Any = jvm_of(spark).onceflow.sink
    terms = [(ORDER_COLUMN + term.column, term.is_descending) for term in order.by]
    if order.ties is Ties.CONTENT:
        terms += [(KEY_COLUMN, False), (VALUE_COLUMN, False)]
    elif writers:
        frame = frame.withColumn(_ARRIVAL_COLUMN, F.monotonically_increasing_id())
        terms.append((_ARRIVAL_COLUMN, False))
    terms = [(PARTITION_COLUMN, False), *terms]
    made: Any
    if writers:
        task = F.pmod(F.col(PARTITION_COLUMN), F.lit(writers))
        columns = [_column(name).desc() if falls else _column(name).asc() for name, falls in terms]
        arranged = frame.repartitionById(writers, task).sortWithinPartitions(*columns)
        made = sink.ShuffledRows(arranged._jdf)  # noqa: SLF001  no public way
    else:
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001  no public way
        names = gateway.new_array(gateway.jvm.String, len(terms))
        fall = gateway.new_array(gateway.jvm.boolean, len(terms))
        for place, (name, falls) in enumerate(terms):
            names[place], fall[place] = name, falls
        made = sink.CollectedRows(frame._jdf, names, fall)  # noqa: SLF001
    rows = BatchRows(spark, made)
    try:
        yield rows
    finally:
        rows.close()


def partition_column(spark: SparkSession, partitioner: str, of: Column, partitions: int) -> Column:
    """The partition of a key, by the partitioner of that name.

    Raises:
        ConfigError: no such partitioner.
    """
    key = F.coalesce(of, F.lit(b""))
    if partitioner == "crc32":
        return (F.crc32(key) % partitions).cast("int")
    if partitioner != "murmur2":
        expected = "crc32 or murmur2"
        raise ConfigError("unknown partitioner", subject=partitioner, expected=expected)
    jvm: Any = jvm_of(spark)
    hashed = jvm.onceflow.sink.Murmur2.of(key._jc)  # noqa: SLF001  no public way
    return Column(hashed) % partitions


def _column(name: str) -> Column:
    """A column whose name has dots."""
    return F.col(f"`{name}`")
