"""Writes the state that a changed query goes on with, made of that of the query before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from onceflow.errors import ConfigError, InvariantError, RetriableError
from onceflow.java.loader import new_instance
from onceflow.processing.runner import Runner
from onceflow.runtime.spark.errors import text_of
from onceflow.runtime.spark.jvm import UNREACHABLE
from onceflow.runtime.state.forms import Form, form_written_by
from onceflow.runtime.state.layout import Operator, Store
from onceflow.runtime.state.reader import StateReader

Change = Callable[[dict[str, Any], dict[str, Any]], Any]
"""Makes `(key, value)` of a key and a value, or None if that row is to go."""
ROWS = 10_000
"""That are held as Python objects at a time."""
_WAKE = "wake_ms"
_NOTHING = "nothing was written; correct the function, then try again"


class StateRewriter:
    """Writes the state of a copy of a checkpoint.

    Args:
        old: reads the state that there is.
        new: of the copy, where Spark has described the operators of the new query.
        jvm: Py4J's view of it.
        session: of the JVM, with the settings that the checkpoint pins.
        batch: as of which the state is read. It is written as of the next one.
    """

    def __init__(
        self, old: StateReader, new: StateReader, jvm: Any, session: Any, batch: int
    ) -> None:
        self._old = old
        self._new = new
        self._java = jvm
        self._session = session
        self._batch = batch

    def write(
        self,
        old: Operator | None,
        new: Operator,
        partitions: int,
        change: Change | None,
        runner: Runner | None,
    ) -> tuple[int, Sequence[Sequence[str]]]:
        """Write the state of an operator.

        Args:
            old: the operator whose rows it is made of; None: there are none.
            new: the operator of the copy.
            partitions: of state with a key.
            change: called for each row; None: they stay as they are.
            runner: of the new operator, if that is a processor.

        Returns:
            How many rows it has, and for each partition the ids of the files of its stores.

        Raises:
            ConfigError: the function fails, or gives what cannot be stored; names function and key.
            RetriableError: files cannot be written.
        """
        count = 0
        ids: list[list[str]] = []
        for store in new.stores:
            key, value = map(_columns, self._new.schemas(new, store))
            # Spark keeps rows without a key in one partition.
            is_alone = new.kind == "limit" or not key.fields
            writer = self._opened(new, store, key, value, 1 if is_alone else partitions)
            changed = _Changed(change, _schema(key, value, store), runner) if change else None
            try:
                for table in self._tables(old, store, changed):
                    _put(writer, table, changed)
                    count += table.num_rows
                written = [[*each] for each in writer.commit()]
            except UNREACHABLE as error:
                raise RetriableError(
                    "the state of the copy cannot be written",
                    subject=self._new.folder,
                    found=text_of(error).partition("\n")[0],
                    then="the pipeline is as it was; try again when that is cured",
                ) from error
            finally:
                with suppress(*UNREACHABLE):
                    writer.close()
            ids = [[*a, *b] for a, b in zip(ids, written, strict=True)] if ids else written
        return count, ids

    def _opened(
        self, new: Operator, store: Store, key: StructType, value: StructType, partitions: int
    ) -> Any:
        return new_instance(self._java, "StateWriter").open(
            self._session,
            self._new.folder,
            new.operator_id,
            store.name,
            key.json(),
            value.json(),
            store.prefix,
            store.family,
            store.counter,
            partitions,
            self._batch + 2,
        )

    def _tables(
        self, old: Operator | None, store: Store, changed: _Changed | None
    ) -> Iterator[pa.Table]:
        """The rows of a store of the new query, some at a time."""
        if old is None:
            return
        # Each side of a join is made of the same side.
        alike = [each for each in old.stores if each.variable == store.variable]
        for each in alike or old.stores:
            tables = (table for _, table in self._old.tables(old, each, self._batch))
            if changed is None:
                yield from (self._with_wakes(old, t) for t in tables) if old.step else tables
                continue
            for chunk in chain.from_iterable(table.to_batches(ROWS) for table in tables):
                yield changed.table(self._pairs(old, each, chunk))

    def _with_wakes(self, old: Operator, table: pa.Table) -> pa.Table:
        """With a timer for each key, as its state says."""
        forms = self._old.layout.forms(old)
        contents = [next(iter(each.values())) for each in table["value"].to_pylist()]
        wakes = [forms.form_of(each).wake_ms(each) for each in contents]
        return table.append_column(_WAKE, pa.array(wakes, pa.int64()))

    def _pairs(
        self, old: Operator, store: Store, rows: pa.RecordBatch
    ) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Key and value as the user's function is given them."""
        for row in rows.to_pylist():
            key, value = row["key"], row["value"]
            if store.counter:
                key.popitem()  # the number of the row, which is given again
            if old.step:
                [content] = value.values()
                value = self._old.layout.forms(old).form_of(content).values(content)
            yield key, value


class _Changed:
    """Rows that a user's function makes.

    Args:
        change: the function.
        schema: of the rows.
        runner: of the operator that they are for, if that is a processor.
    """

    def __init__(self, change: Change, schema: pa.Schema, runner: Runner | None) -> None:
        self._change = change
        self._schema = schema
        self._runner = runner
        self._form: Form | None = None
        values = _typed(schema.field("value").type)
        if runner:
            self._form = Form(form_written_by(runner))
            values = ", ".join(f"{name}: {kind}" for name, kind in self._form.columns().items())
        keys = _typed(schema.field("key").type)
        self._expected = f"(key, value) with key {{{keys}}} and value {{{values}}}"

    def table(self, pairs: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> pa.Table:
        """Call it for each.

        Raises:
            ConfigError: it fails, or gives what cannot be stored.
        """
        rows = [row for key, value in pairs if (row := self._row(key, value))]
        return pa.Table.from_pylist(rows, schema=self._schema)

    def _row(self, key: dict[str, Any], value: dict[str, Any]) -> Mapping[str, Any] | None:
        before = dict(key)
        try:
            new = self._change(key, value)
        except Exception as error:  # a user's function may raise anything
            found = f"{type(error).__name__}: {error}"
            raise self.refusal("the function failed", "a row, or None", found, before) from error
        if new is None:
            return None
        try:
            new_key, new_value = new
            row = self._stored(dict(new_key), dict(new_value))
            if row:
                _check_names(row, pa.struct(self._schema))
                pa.Table.from_pylist([row], schema=self._schema)
        except (TypeError, ValueError, pa.ArrowException) as error:
            what = "the function gave what cannot be stored"
            raise self.refusal(what, self._expected, str(error), before) from error
        return row

    def _stored(self, key: dict[str, Any], value: dict[str, Any]) -> Mapping[str, Any] | None:
        """A row; None if a processor has nothing to keep."""
        if self._form is None or self._runner is None:
            return {"key": key, "value": value}
        if not (kept := self._form.encode(value, self._runner.time)):
            return None
        content, wake_ms = kept
        [column] = [field.name for field in self._schema.field("value").type]
        return {"key": key, "value": {column: content}, _WAKE: wake_ms}

    def refusal(self, what: str, expected: str, found: str, key: Mapping[str, Any]) -> ConfigError:
        """An error that names function and key."""
        name = getattr(self._change, "__name__", self._change)
        subject = f"{name}, key {json.dumps(key, default=str)}"
        return ConfigError(what, subject=subject, expected=expected, found=found, then=_NOTHING)


def _put(writer: Any, table: pa.Table, changed: _Changed | None) -> None:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    twice = writer.put(out.getvalue().to_pybytes())
    if twice < 0:
        return
    if changed is None:
        raise InvariantError("a key of the state is there twice", found=str(table["key"][twice]))
    what, expected = "the function gave two rows for one key", "one row for each key"
    raise changed.refusal(what, expected, "another one before", table["key"][twice].as_py())


def _schema(key: StructType, value: StructType, store: Store) -> pa.Schema:
    """Rows as `StateWriter` takes them."""
    if store.counter:
        key = StructType(key.fields[:-1])
    columns = [StructField("key", key), StructField("value", value)]
    columns += [StructField(_WAKE, LongType())] * bool(store.family)
    return to_arrow_schema(StructType(columns), timezone="UTC")


def _columns(text: str) -> StructType:
    return StructType.fromJson(json.loads(text))


def _check_names(value: Any, kind: pa.DataType) -> None:
    if pa.types.is_struct(kind) and value is not None:
        names = [field.name for field in kind]
        if {*value} != {*names}:
            raise ValueError(f"columns {', '.join(map(str, value))} in place of {', '.join(names)}")
        for field in kind:
            _check_names(value[field.name], field.type)


def _typed(kind: pa.StructType) -> str:
    return ", ".join(f"{each.name}: {each.type}" for each in kind)
