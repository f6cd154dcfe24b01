"""Adapts any source of the contract to PySpark's Python Data Source API.

Spark runs the planning half in one Python process on the driver and the reading half in workers.
Nothing is shared between them but options, offsets and splits, so everything travels as text.

Our offset in Spark's log is `{"position": <the source's own>, "source": <its name>}`, with
`"tick_ms": <event time>` from the source's first tick on, and in one source of a pipeline
`"parameters"`, from the first change of one on (`parameters.py`), and `"references"`, if there are
any (`references.py`). An offset with another tick than
the one before it makes the batch yield one row that stands for no record: all null, but for
`TICK_COLUMN`.
"""

from __future__ import annotations

import base64
import gc
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from onceflow.clock import Clock, SystemClock
from onceflow.contracts.connector import Connection
from onceflow.contracts.source import TICK_COLUMN, Planner, Position, Reader, SourceSpec, Split
from onceflow.contracts.source_block import SourceBlock, find_source
from onceflow.errors import ConfigError, InvariantError, LineageError
from onceflow.protocol.identity import is_kafka_topic
from onceflow.protocol.ledger import canonical_json
from onceflow.runtime.source.parameters import ParameterFollower, ParameterTopic
from onceflow.runtime.source.references import ReferenceFollower, ReferenceSettings
from onceflow.runtime.source.ticks import Ticker, TickSettings

FORMAT = "onceflow"
"""Name under which Spark knows the data source."""

_START, _END = "start", "end"
"""Options that hold the positions of a range."""
_TICK = "tick_ms"
"""In an offset: event time of the newest tick of the source."""
_PARAMETERS = "parameters"
"""In an offset: the values of parameters, and how far their topic was read."""
_REFERENCES = "references"
"""In an offset: the versions of references."""
_TICK_FIELD = pa.field(TICK_COLUMN, pa.timestamp("us", tz="UTC"))

IDLE_WAIT_S = 0.05
"""How long planning waits for something new. Longer would delay a join's other source; shorter
would let Spark ask all the time, each time through two processes."""
SMALL_BATCH_OFFSETS = 5_000
"""Up to here a batch is one task: starting another costs more than to read a few milliseconds
longer, and a reader that always reads all partitions never has to look for its place."""
COLLECTOR_THRESHOLD = 100_000
"""Objects more than before that make Python look for cycles: several chunks of records."""
IDLE_POLL_S = 0.01
"""Between two looks while waiting: what it may add to the latency of a record on a quiet topic."""


@dataclass(frozen=True)
class SourceHandle:
    """All that both halves of a source are made from, as text for Spark's options; has secrets."""

    kind: str
    block: SourceBlock
    spec: SourceSpec
    connection: Connection
    ticks: TickSettings | None = None
    parameters: ParameterTopic | None = None
    references: ReferenceSettings | None = None

    def to_options(self) -> Mapping[str, str]:
        """Encode. Spark redacts options with `secret` in their name wherever it shows them."""
        schema = self.spec.schema.serialize().to_pybytes()
        spec = {**self.spec.__dict__, "schema": base64.b64encode(schema).decode()}
        return {
            "kind": self.kind,
            "block": canonical_json(self.block.written),
            "spec": canonical_json(spec),
            "ticks": canonical_json(asdict(self.ticks) if self.ticks else None),
            "parameters": canonical_json(asdict(self.parameters) if self.parameters else None),
            "references_secret": canonical_json(
                asdict(self.references) if self.references else None
            ),
            "connection_secret": canonical_json(asdict(self.connection)),
        }

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> SourceHandle:
        """Inverse of `to_options`."""
        spec = json.loads(options["spec"])
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(spec["schema"])))
        connection = Connection(**json.loads(options["connection_secret"]))
        ticks, parameters = json.loads(options["ticks"]), json.loads(options["parameters"])
        references = json.loads(options["references_secret"])
        return cls(
            options["kind"],
            find_source(options["kind"]).model_validate(json.loads(options["block"])),
            SourceSpec(**{**spec, "schema": schema}),
            connection,
            TickSettings(**ticks) if ticks else None,
            ParameterTopic.from_json(parameters) if parameters else None,
            ReferenceSettings.from_json(references) if references else None,
        )

    def planner(self) -> Planner:
        """Make the half of the driver."""
        return self.block.planner(self.spec, self.connection)

    def reader(self) -> Reader:
        """Make the half of a worker."""
        return self.block.reader(self.spec, self.connection)

    @property
    def columns(self) -> pa.Schema:
        """Those of the spec, and that of ticks if there are any."""
        return self.spec.schema.append(_TICK_FIELD) if self.ticks else self.spec.schema


class OnceflowSource(DataSource):
    """The data source that Spark instantiates, from the options of `SourceHandle`."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Columns of the handle."""
        return from_arrow_schema(SourceHandle.from_options(self.options).columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of both halves; nothing is connected yet."""
        return SourceReader(self._handle(schema), SystemClock())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of what lies between two positions, which are options, too."""
        start, end = (json.loads(self.options[name]) for name in (_START, _END))
        return RangeReader(self._handle(schema), start, end)

    def _handle(self, schema: StructType) -> SourceHandle:
        handle = SourceHandle.from_options(self.options)
        # Spark checks batches against its own idea of the schema, to the names inside of lists.
        columns = to_arrow_schema(schema, timezone="UTC")
        spec = replace(
            handle.spec, schema=pa.schema(columns.field(name) for name in handle.spec.schema.names)
        )
        return replace(handle, spec=spec)


class RangeReader(DataSourceReader):
    """Reads a range that a stream has read, once more. There are no ticks in it."""

    def __init__(self, handle: SourceHandle, start: Position, end: Position) -> None:
        self._handle = handle
        self._start = start
        self._end = end

    def partitions(self) -> Sequence[InputPartition]:
        """Tasks; none if the range is empty."""
        return _tasks(_checked(self._handle.planner().splits(self._start, self._end), self._handle))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what one task has to, in a worker."""
        _let_the_collector_rest()
        return self._handle.reader().read(partition.value)


class TickInput(InputPartition):
    """A task that yields one tick; others carry their splits."""


class SourceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Both halves of the adapter. A worker gets a copy, without what the driver has planned.

    Raises:
        ConfigError: ticks are asked for of a source that cannot tell whether it is silent.
    """

    def __init__(self, handle: SourceHandle, clock: Clock) -> None:
        if handle.ticks is not None and not handle.block.capabilities.tells_silence:
            raise ConfigError(
                "this kind of source cannot tell whether it is silent",
                subject=f"source {handle.spec.name}",
                then="remove `idle_after`",
            )
        self._handle = handle
        self._spec = handle.spec
        self._clock = clock
        self._is_frozen = False
        self._ticker = Ticker(handle.ticks, clock) if handle.ticks is not None else None

    def __reduce__(self) -> tuple[object, ...]:
        return (SourceReader, (self._handle, self._clock))

    @cached_property
    def _planner(self) -> Planner:
        return self._handle.planner()

    @cached_property
    def _followers(self) -> Mapping[str, ParameterFollower | ReferenceFollower]:
        """Those who add to the offsets of this source, by the key there."""
        handle = self._handle
        found: dict[str, ParameterFollower | ReferenceFollower] = {}
        if handle.parameters:
            values = ParameterFollower(handle.parameters, handle.connection, self._clock)
            found[_PARAMETERS] = values
        if handle.references:
            tables = ReferenceFollower(handle.references, handle.connection, self._clock)
            found[_REFERENCES] = tables
        return found

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts. Spark asks again when batch 0 replays."""
        return self._offset(self._planner.initial_position())

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of the pipeline file. Spark may pass another one to `latestOffset`."""
        return ReadMaxRows(self._handle.block.max_records_per_batch)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch reads. Waits a little for something new, or else for a tick."""
        begin, tick_ms = self._position(start), start.get(_TICK)
        max_records = _max_records(limit)
        more = self._besides(start)
        is_patient = not self._is_frozen and all(start.get(name) == more[name] for name in more)
        patience = self._clock.within(IDLE_WAIT_S if is_patient else 0.0)
        while True:
            end = self._planner.latest_position(begin, max_records)
            if end != begin or patience.is_over:
                break
            self._clock.sleep(patience.at_most_s(IDLE_POLL_S))
        offset = self._offset(end, self._next_tick(end, tick_ms, is_new=end != begin))
        return {**offset, **more}

    def _besides(self, start: Mapping[str, Any]) -> Mapping[str, Any]:
        """Look up what an offset says besides positions, after the one of `start`."""
        found = {name: each.next(start.get(name)) for name, each in self._followers.items()}
        return {name: told for name, told in found.items() if told}

    def prepareForTriggerAvailableNow(self) -> None:
        """Read nothing that is not there yet. There would be no end of ticks, so there are none."""
        self._planner.freeze_latest()
        for each in self._followers.values():
            each.freeze()
        self._is_frozen = True
        self._ticker = None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Tasks of a batch: the same for a replay."""
        tick_ms = end.get(_TICK) if self._handle.ticks else None
        ticks = [TickInput(tick_ms)] if tick_ms not in (None, start.get(_TICK)) else []
        splits = self._planner.splits(self._position(start), self._position(end))
        return [*_tasks(_checked(splits, self._handle)), *ticks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read what one task has to, in a worker."""
        if isinstance(partition, TickInput):
            return iter([_tick_row(self._spec.schema, partition.value)])
        _let_the_collector_rest()
        records = self._handle.reader().read(partition.value)
        return map(_without_ticks, records) if self._handle.ticks else records

    def commit(self, end: dict[str, Any]) -> None:
        """Batches up to `end` are done. What was read is kept: a batch may be verified later."""
        self._position(end)

    def stop(self) -> None:
        """The query has ended."""
        self._planner.close()
        for each in self._followers.values():
            each.close()

    def _next_tick(self, end: Position, last_ms: int | None, *, is_new: bool) -> int | None:
        """The tick of this offset: a new one only if it has nothing else new."""
        if self._ticker is None:
            return last_ms
        if is_new:
            self._ticker.note_records()
            return last_ms
        due_ms = self._ticker.due_ms(last_ms)
        return due_ms if due_ms is not None and self._planner.is_silent(end) else last_ms

    def _offset(self, position: Position, tick_ms: int | None = None) -> dict[str, Any]:
        tick = {} if tick_ms is None else {_TICK: tick_ms}
        return {"position": position, "source": self._spec.name, **tick}

    def _position(self, offset: Mapping[str, Any]) -> Position:
        """The source's own part. Spark knows sources by their order in the query only."""
        if offset.get("source") != self._spec.name:
            raise LineageError(
                "the checkpoint holds the position of another source",
                subject=self._spec.name,
                expected=f"source {self._spec.name}",
                found=f"source {offset.get('source')}",
                then="sources cannot be renamed, removed or reordered on an existing checkpoint",
            )
        position: Position = offset["position"]
        return position


def register(spark: SparkSession) -> None:
    """Tell Spark of the format. The first time it looks for others by a Python process: 0.5 s."""
    spark.dataSource.register(OnceflowSource)


def open_stream(spark: SparkSession, handle: SourceHandle) -> DataFrame:
    """The source as a streaming frame with exactly the columns of its spec."""
    register(spark)
    return spark.readStream.format(FORMAT).options(**handle.to_options()).load()


def open_range(
    spark: SparkSession, handle: SourceHandle, start: Position, end: Position
) -> DataFrame:
    """Read what is between two positions, with exactly the columns of the spec."""
    bounds = {_START: canonical_json(start), _END: canonical_json(end)}
    return spark.read.format(FORMAT).options(**handle.to_options(), **bounds).load()


def _checked(splits: Sequence[Split], handle: SourceHandle) -> Sequence[Split]:
    """Refuse a name that could be mistaken for a topic of the pipeline's brokers."""
    if handle.block.kafka_topics() is None:
        for split in splits:
            if is_kafka_topic(split.topic):
                raise ConfigError(
                    "a source names what it reads like a Kafka topic",
                    subject=f"source {handle.spec.name} of kind {handle.kind}",
                    expected=f"a name with a colon, such as {handle.kind}:PLACE",
                    found=split.topic,
                    then="correct the planner of that kind",
                )
    return splits


def _tasks(splits: Sequence[Split]) -> Sequence[InputPartition]:
    if 0 < sum(split.end - split.start for split in splits) <= SMALL_BATCH_OFFSETS:
        return [InputPartition(tuple(splits))]
    return [InputPartition((split,)) for split in splits]


def _tick_row(schema: pa.Schema, tick_ms: int) -> pa.RecordBatch:
    at = pa.array([tick_ms * 1000], pa.int64()).cast(_TICK_FIELD.type)
    nulls = [pa.nulls(1, kind) for kind in schema.types]
    return pa.RecordBatch.from_arrays([*nulls, at], schema=schema.append(_TICK_FIELD))


def _without_ticks(records: pa.RecordBatch) -> pa.RecordBatch:
    return records.append_column(_TICK_FIELD, pa.nulls(records.num_rows, _TICK_FIELD.type))


def _let_the_collector_rest() -> None:
    """Keep Python's cycle collector from looking at records again and again in this worker.

    Ten thousand records are ten thousand objects that reference counts free soon. With the default
    threshold of 700, looking for cycles among them and all that is loaded was a third of the
    processor time of a worker.
    """
    if gc.get_threshold()[0] != COLLECTOR_THRESHOLD:
        gc.freeze()
        gc.set_threshold(COLLECTOR_THRESHOLD)


def _max_records(limit: ReadLimit) -> int | None:
    """Spark's limit. It may ask for everything although a default limit was given: obey."""
    if isinstance(limit, ReadMaxRows):
        return limit.max_rows
    if isinstance(limit, ReadAllAvailable):
        return None
    raise InvariantError("Spark asks for a limit that was not offered", found=repr(limit))
