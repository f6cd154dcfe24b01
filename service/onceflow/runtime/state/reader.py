"""Reads state from the files of a checkpoint, by Spark's own classes, whether the pipeline runs.

`StateReader.java` opens one partition of one store as of a version, in a folder of its own, and
answers in batches of Arrow. One that is given its key as a whole opens one partition and looks up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError

from onceflow.clock import Deadline
from onceflow.errors import ConfigError, Fault, RetriableError, unknown_name
from onceflow.java.loader import new_instance
from onceflow.java.s3_jars import require_s3_jars
from onceflow.runtime.checkpoint.files import CheckpointFiles
from onceflow.runtime.checkpoint.state_files import find_damage
from onceflow.runtime.spark.errors import text_of
from onceflow.runtime.spark.jvm import UNREACHABLE
from onceflow.runtime.spark.s3_files import SCHEME, keys_of_file, s3_error
from onceflow.runtime.spark.session import SessionSettings, spark_conf
from onceflow.runtime.state.forms import plain
from onceflow.runtime.state.layout import Operator, StateLayout, Store, find_operator

MAX_ROWS = 1_000
"""Rows that one question gets at most."""
EXAMINED = 20_000
"""Rows that are examined, or handed over, in one call of the JVM."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Size:
    """Rows and bytes of one partition of a store."""

    variable: str
    partition: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class StateDigest:
    """Tells states apart, whatever the order and the number of partitions.

    Attributes:
        total: sum of a 64-bit hash of each row.
    """

    rows: int
    total: int

    def __add__(self, other: StateDigest) -> StateDigest:
        """The digest of both parts together."""
        return StateDigest(self.rows + other.rows, self.total + other.total)


class StateReader:
    """Reads the state of one checkpoint, and changes nothing. Not for several threads at once.

    Args:
        jvm: Py4J's view of one with Spark's classes.
        settings: Spark's, as a session has them.

    Raises:
        ConfigError: there is no such operator, column or batch, or a value of another type; lists
            what there is. From any method.
        CorruptionError: a file is damaged. From any method.
        RetriableError: files are gone or do not answer. From any method.
    """

    def __init__(
        self,
        files: CheckpointFiles,
        jvm: Any,
        settings: Mapping[str, str],
    ) -> None:
        self.layout = StateLayout(files)
        self._files = files
        self._java = jvm
        self._settings = settings
        self._open: dict[tuple[int, str, bool], Any] = {}

    @property
    def folder(self) -> str:
        """Where the state is."""
        return f"{self._files.location}/state"

    def close(self) -> None:
        """Delete the copies of files."""
        for opened in self._open.values():
            with suppress(*UNREACHABLE):
                opened.close()
        self._open.clear()

    def operator(self, text: str | None) -> Operator:
        """The operator with this name or number; without a text, the only one."""
        return find_operator(self.layout.operators(), text)

    def find(self, operator: str | None, batch: int | None) -> tuple[Operator, int]:
        """The operator and the batch that are asked for: by default the only and the newest one."""
        found = self.operator(operator)
        return found, self.layout.require_batch(found, batch)

    def columns(self, operator: Operator) -> Mapping[str, Mapping[str, Mapping[str, str]]]:
        """For each variable the types of the columns of `key` and `value`, by their paths."""
        return {
            store.variable: {
                part: {path: _name(of_type) for path, of_type in columns.items()}
                for part, columns in (
                    ("key", self._key(operator, store)),
                    (
                        "value",
                        self.layout.forms(operator).columns()
                        if operator.step
                        else self._value(operator, store),
                    ),
                )
            }
            for store in operator.stores
        }

    def describe(self, operator: Operator) -> Mapping[str, Any]:
        """An operator as plain data: its columns, and the batches that can be read."""
        readable = self.layout.batches(operator)
        return {
            "operator": operator.operator_id,
            "name": operator.name,
            "kind": operator.kind,
            "partitions": operator.partitions,
            "first_batch": readable[0] if readable else None,
            "last_batch": readable[-1] if readable else None,
            "variables": [
                {"variable": variable, **columns}
                for variable, columns in self.columns(operator).items()
            ],
        }

    def get(
        self,
        operator: Operator,
        key: Mapping[str, str | None],
        batch: int,
        deadline: Deadline,
        most: int = MAX_ROWS,
    ) -> Sequence[Row]:
        """The first rows, at most `most`, with these values in their keys.

        A key has a text for each column, None for null. If one is missing that the query groups by,
        every row is examined.

        Raises:
            DeadlineError: it takes too long.
        """
        found: list[Row] = []
        for store in operator.stores:
            self._check_key(operator, store, key)
            for rows in self._look_up(operator, store, self._java_map(key), batch, most):
                found += rows
                if len(found) >= most:
                    return found[:most]
                deadline.check("reading state takes too long", subject=operator.name)
        return found

    def _look_up(
        self, operator: Operator, store: Store, texts: Any, batch: int, most: int
    ) -> Iterator[Iterator[Row]]:
        """The rows of one store, some at a time; perhaps none of those that were examined."""
        with self._told(operator, batch):
            of_key = self._store(operator, store).partitionOf(texts, operator.partitions)
        for partition in self._partitions(operator, batch) if of_key < 0 else [of_key]:
            unique = self.layout.unique_ids(operator, batch)[partition][store.place]
            with self._told(operator, batch):
                reader = self._store(operator, store)
                reader.find(partition, batch + 1, unique, texts, most)
            for table in self._tables(reader, operator, batch):
                yield self._rows(operator, store, partition, table)

    def export(self, operator: Operator, batch: int) -> Iterator[tuple[Store, int, pa.Table]]:
        """Every row: the store, the partition, and a table with `key` and `value`.

        The value of a processor is a text of JSON.
        """
        for store in operator.stores:
            for partition, table in self.tables(operator, store, batch):
                yield store, partition, self._exported(operator, table)

    def tables(
        self, operator: Operator, store: Store, batch: int
    ) -> Iterator[tuple[int, pa.Table]]:
        """Every row of a store as it is kept: the partition, and a table with `key` and `value`."""
        for partition in self._partitions(operator, batch):
            reader = self._load(operator, store, partition, batch)
            with self._told(operator, batch):
                reader.select(self._java_map({}), 0)
            for table in self._tables(reader, operator, batch):
                yield partition, table

    def schemas(self, operator: Operator, store: Store) -> tuple[str, str]:
        """Columns of the keys and of the values of a store, as JSON of Spark."""
        with self._told(operator):
            reader = self._store(operator, store)
            return reader.key(), reader.value()

    def _exported(self, operator: Operator, table: pa.Table) -> pa.Table:
        if not operator.step:
            return table
        values = [self._decoded(operator, each) for each in table["value"].to_pylist()]
        texts = pa.array([json.dumps(each) for each in values], pa.string())
        return table.set_column(table.schema.get_field_index("value"), "value", texts)

    def diff(self, operator: Operator, before: int, after: int) -> Iterator[Row]:
        """The rows that differ between two batches, with null for a value that is not there."""
        for store in operator.stores:
            for partition in self._partitions(operator, after):
                older = self._load(operator, store, partition, before, is_second=True)
                newer = self._load(operator, store, partition, after)
                with self._told(operator, after):
                    newer.compare(older)
                for table in self._tables(newer, operator, after):
                    yield from self._rows(operator, store, partition, table)

    def sizes(self, operator: Operator, batch: int) -> Iterator[Size]:
        """Rows and bytes of each partition of each store. Reads all of them."""
        for store in operator.stores:
            for partition in self._partitions(operator, batch):
                rows, size, _ = self._summary(operator, store, partition, batch)
                yield Size(store.variable, partition, rows, size)

    def digest(
        self, operator: Operator, batch: int, partitions: Sequence[int] | None = None
    ) -> StateDigest:
        """A digest of the state as of a batch, or of some of its partitions, which is cheaper."""
        found = StateDigest(0, 0)
        for store in operator.stores:
            for partition in partitions or self._partitions(operator, batch):
                rows, _, total = self._summary(operator, store, partition, batch)
                found += StateDigest(rows, total)
        return found

    def _partitions(self, operator: Operator, batch: int) -> Sequence[int]:
        """Those that have state: without a key, it is one."""
        return range(len(self.layout.unique_ids(operator, batch)))

    def _summary(
        self, operator: Operator, store: Store, partition: int, batch: int
    ) -> tuple[int, int, int]:
        reader = self._load(operator, store, partition, batch)
        with self._told(operator, batch):
            rows, size, total = map(int, reader.summary().split())
        return rows, size, total

    def _key(self, operator: Operator, store: Store) -> Mapping[str, object]:
        with self._told(operator):
            return dict(_leaves(json.loads(self._store(operator, store).key())))

    def _value(self, operator: Operator, store: Store) -> Mapping[str, object]:
        with self._told(operator):
            return dict(_leaves(json.loads(self._store(operator, store).value())))

    def _check_key(self, operator: Operator, store: Store, key: Mapping[str, str | None]) -> None:
        columns = self._key(operator, store)
        faults = [unknown_name("no key column", name, [*columns]) for name in key.keys() - columns]
        reader = self._store(operator, store)
        for name in sorted(key.keys() & columns.keys()):
            text, of_type = key[name], columns[name]
            is_fit = isinstance(of_type, str) and (
                text is None or reader.fits(text, json.dumps(of_type))
            )
            if not is_fit:
                faults.append(Fault(f"found {text!r}", name, expected=f"a {_name(of_type)}"))
        if faults:
            subject = f"{operator.name}, whose key has {', '.join(columns) or 'no columns'}"
            raise ConfigError("this key cannot be used", subject=subject, faults=tuple(faults))

    def _store(self, operator: Operator, store: Store, *, is_second: bool = False) -> Any:
        place = operator.operator_id, store.name, is_second
        if place not in self._open:
            settings = self._properties({**self._settings, **self.layout.newest_settings()})
            self._open[place] = new_instance(self._java, "StateReader").open(
                self.folder,
                settings,
                operator.operator_id,
                store.name,
                store.prefix,
                bool(store.counter),
                self._files.path(store.schema) if store.schema else "",
                store.family,
            )
        return self._open[place]

    def _load(
        self,
        operator: Operator,
        store: Store,
        partition: int,
        batch: int,
        *,
        is_second: bool = False,
    ) -> Any:
        unique = self.layout.unique_ids(operator, batch)[partition][store.place]
        with self._told(operator, batch):
            reader = self._store(operator, store, is_second=is_second)
            reader.load(partition, batch + 1, unique)
        return reader

    def _tables(self, reader: Any, operator: Operator, batch: int) -> Iterator[pa.Table]:
        while True:
            with self._told(operator, batch):
                answer = reader.next(EXAMINED)
            if answer is None:
                return
            yield pa.ipc.open_stream(answer).read_all()

    def _rows(
        self, operator: Operator, store: Store, partition: int, table: pa.Table
    ) -> Iterator[Row]:
        for row in table.to_pylist():
            values = {
                part: value if part == "key" else self._decoded(operator, value)
                for part, value in row.items()
            }
            variable = {"variable": store.variable} if store.variable else {}
            yield {**variable, "partition": partition, **{p: plain(v) for p, v in values.items()}}

    def _decoded(self, operator: Operator, value: Mapping[str, Any] | None) -> Any:
        """Decode what a processor keeps of a key, which is one value of bytes."""
        if value is None or not operator.step:
            return value
        (content,) = value.values()
        return self.layout.forms(operator).decode(content)

    def _properties(self, values: Mapping[str, str]) -> Any:
        """As `_java_map`, in two calls of the JVM: many settings cost it 0.3 s one by one."""
        lines = (f"{_escaped(name)}={_escaped(value)}\n" for name, value in values.items())
        found = self._java.java.util.Properties()
        found.load(self._java.java.io.StringReader("".join(lines)))
        return found

    def _java_map(self, values: Mapping[str, str | None]) -> Any:
        found = self._java.java.util.HashMap()
        for name, value in values.items():
            found.put(name, value)
        return found

    @contextmanager
    def _told(self, operator: Operator, batch: int | None = None) -> Iterator[None]:
        """Turn what the JVM raises into our own error, which names the damaged file if one is."""
        try:
            yield
        except OSError as error:
            raise RetriableError(
                "the state cannot be read now",
                subject=self.folder,
                expected="a JVM that answers",
                found=f"{type(error).__name__}: {error}",
                then="try again",
            ) from error
        except Py4JError as error:
            text = text_of(error)
            if self._files.is_on_s3 and (ours := s3_error(text, self._files.location)):
                raise ours from error
            folder = f"state/{operator.operator_id}"
            names = self._files.names(folder)
            for name in find_damage(names, self._files.read_unverified):
                raise self._files.damaged(name) from error
            self.layout.require_batch(operator, batch)
            raise RetriableError(
                "the state cannot be read now",
                subject=self._files.path(folder),
                expected="files that stay while they are read",
                found=text.splitlines()[0] if text else type(error).__name__,
                then="try again: a pipeline that runs deletes what is too old",
            ) from error


def opened_state(
    location: str, session: SessionSettings, jvm: Any
) -> AbstractContextManager[StateReader]:
    """Open the state of a checkpoint; the end of the block deletes copies of files.

    Raises:
        ConfigError, RetriableError: the checkpoint cannot be reached.
    """
    if location.startswith(SCHEME):
        require_s3_jars(location)
    keys = {f"spark.hadoop.{name}": key for name, key in keys_of_file(session.conf).items()}
    settings = {**spark_conf(session, location, ""), **keys}
    return closing(StateReader(CheckpointFiles(location, session.conf), jvm, settings))


def parse_key(texts: Sequence[str]) -> Mapping[str, str | None]:
    """A key as people write it: `column=value` for each column, `column` alone for null.

    Raises:
        ConfigError: a column is given twice, or has no name.
    """
    pairs = [text.partition("=") for text in texts]
    key = {name: value if equals else None for name, equals, value in pairs}
    if len(key) < len(pairs) or "" in key:
        raise ConfigError(
            "this key cannot be used",
            subject=" ".join(texts),
            expected="`column=value` once for each column, or `column` alone for null",
        )
    return key


def _leaves(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, object]]:
    """Each column but structs, and its type as Spark's JSON has it."""
    for field in schema["fields"]:
        name, of_type = f"{path}{field['name']}", field["type"]
        if isinstance(of_type, dict) and of_type["type"] == "struct":
            yield from _leaves(of_type, f"{name}.")
        else:
            yield name, of_type


def _name(of_type: object) -> str:
    return of_type if isinstance(of_type, str) else str(of_type["type"])  # type: ignore[index]


def _escaped(text: str) -> str:
    """A text as files of Java's properties have it."""
    units = text.encode("utf-16-be").hex(" ", 2).split()
    return "".join(f"\\u{unit}" for unit in units)
