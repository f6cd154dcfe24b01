"""The operator in Spark's Python workers: many keys at a time.

PySpark hands a processor one key, and makes a Python object of each cell by itself, which costs ten
times what counting does. Here the rows of a task stay Arrow data until their key's turn, and states
are read and written in windows. What this needs of PySpark is not public:
`operator.missing_names` says beforehand whether it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.serializers import (
    ArrowStreamSerializer,
    ArrowStreamUDFSerializer,
    TransformWithStateInPySparkRowSerializer,
)
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.streaming.stateful_processor_util import (
    TransformWithStateInPandasFuncMode as Mode,
)
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasUdfUtils

from onceflow.pipeline.process.initial import rows_of_task
from onceflow.pipeline.process.rows import Key, Row, by_key, to_batch, whole_keys
from onceflow.pipeline.process.states import States
from onceflow.pipeline.process.stock import KeyAtATime, parameters_of_batch
from onceflow.processing.initial import begin
from onceflow.processing.initial import by_key as by_key_of_initial
from onceflow.processing.runner import Handled, Runner

MAX_KEYS = 1_000
HELD_BYTES = 4 * 2**20
"""Of the states that are held at a time. A single one may be larger."""
OUTPUT_ROWS = 10_000
"""In one piece of Arrow data."""


class BatchAtATime(TransformWithStateInPandasUdfUtils):
    """PySpark's function of the operator, for all keys of a task instead of one.

    Args:
        stock: declares the state.
        keys: names of the columns that make the key.
        order: names of those that the rows of a key are sorted by.
        output: of the rows that come out.
        initial: rows of the initial state, with the hashes of their keys.
    """

    def __init__(
        self,
        runner: Runner,
        stock: KeyAtATime,
        keys: Sequence[str],
        order: Sequence[str],
        output: pa.Schema,
        initial: pa.Table | None = None,
    ) -> None:
        super().__init__(stock, "EventTime")
        self._runner = runner
        self._keys = keys
        self._order = order
        self._output = output
        self._initial = initial

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the next stream of this worker: PySpark unpickles a task's function just before."""
        vars(self).update(state)
        _take_next_stream()

    def _handle_data_rows(
        self,
        stateful_processor_api_client: StatefulProcessorApiClient,
        key: Any,
        input_rows: Any = None,
    ) -> Iterator[Any]:
        if self._initial is not None:
            self._begin(stateful_processor_api_client, rows_of_task(self._initial))
        tables = whole_keys(input_rows, self._keys)
        groups = (group for table in tables for group in by_key(table, self._keys, self._order))
        return self._batches(stateful_processor_api_client, groups)

    def _handle_expired_timers(
        self, stateful_processor_api_client: StatefulProcessorApiClient
    ) -> Iterator[Any]:
        if not self._runner.may_wake:
            # To ask, Spark would make all that it reads timers with: 10 ms in each task.
            return iter(())
        client = stateful_processor_api_client
        expired = States(client).expired(_watermark_ms(client))
        groups = ((key, ()) for some in expired for key, _ in some)
        return self._batches(client, groups)

    def _begin(self, client: StatefulProcessorApiClient, rows: Sequence[Row]) -> None:
        groups = iter(by_key_of_initial(self._runner, rows).items())
        for _ in self._handled(client, groups, partial(begin, self._runner)):
            """Each has been stored."""

    def _batches(
        self, client: StatefulProcessorApiClient, groups: Iterable[tuple[Key, Sequence[Row]]]
    ) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[object, ...]] = []
        for handled in self._handled(client, iter(groups), self._runner.handle):
            rows.extend(handled.rows)
            if len(rows) >= OUTPUT_ROWS:
                yield to_batch(rows, self._output)
                rows = []
        if rows:
            yield to_batch(rows, self._output)

    def _handled(
        self,
        client: StatefulProcessorApiClient,
        groups: Iterator[tuple[Key, Sequence[Row]]],
        handle: Callable[[Key, bytes | None, Sequence[Row], int, Mapping[str, Any]], Handled],
    ) -> Iterator[Handled]:
        states, watermark_ms = States(client), _watermark_ms(client)
        parameters = parameters_of_batch(self._runner)
        count = 1
        while window := list(islice(groups, count)):
            before = states.get(key for key, _ in window)
            changes = [
                (key, state, handle(key, state, rows, watermark_ms, parameters))
                for (key, rows), state in zip(window, before, strict=True)
            ]
            states.put(changes)
            size = sum(len(state or b"") + len(each.state or b"") for _, state, each in changes)
            # As many as will do, judged by those just seen.
            count = max(1, min(2 * count, MAX_KEYS, count * HELD_BYTES // max(size, 1)))
            for *_, handled in changes:
                yield handled


def _watermark_ms(client: StatefulProcessorApiClient) -> int:
    return client.get_timestamps("EventTime")[1]


def _take_next_stream() -> None:
    """Have the next stream of this process read and written as Arrow data; only the next."""
    serializer: Any = TransformWithStateInPySparkRowSerializer
    arrow: Any = ArrowStreamUDFSerializer
    stock_load = serializer.load_stream

    def load_stream(self: Any, stream: Any) -> Iterator[tuple[Mode, None, Any]]:
        serializer.load_stream = stock_load
        self.dump_stream = lambda results, target: arrow.dump_stream(
            self, ((batch, None) for [(part, _)] in results for batch in part), target
        )
        batches = ArrowStreamSerializer.load_stream(self, stream)
        data = (Mode.PROCESS_DATA, None, batches)
        return iter([data, (Mode.PROCESS_TIMER, None, None), (Mode.COMPLETE, None, None)])

    serializer.load_stream = load_stream
