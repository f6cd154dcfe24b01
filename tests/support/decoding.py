"""Payloads decoded by our Java and by our Python, as text that can be compared."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from decimal import Context
from functools import lru_cache
from typing import Any

import pyarrow.types as pat
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from onceflow.contracts.source import SourceSpec
from onceflow.java.loader import class_loader
from onceflow.pipeline.plan.plan import jvm_of
from onceflow_connectors.decoders import decode, decoder_for
from tests.support.fakes.slow_files import SOURCES

_WIDE = Context(prec=76)


@lru_cache
def _probe(jvm: Any) -> Any:
    """One for each JVM: Py4J takes the methods of a class for those of another of its name."""
    resource = jvm.org.codehaus.commons.compiler.util.resource
    finder = resource.DirectoryResourceFinder(jvm.java.io.File(str(SOURCES)))
    loader = jvm.org.codehaus.janino.JavaSourceClassLoader(class_loader(jvm), finder, "UTF-8")
    return jvm.java.lang.Class.forName("onceflow.tests.DecoderProbe", True, loader).newInstance()


class JavaDecoder:
    """The decoder that the JVM has."""

    def __init__(self, spark: SparkSession) -> None:
        self._probe = _probe(jvm_of(spark))

    def lines(
        self, ddl: str, payloads: Sequence[bytes | None], kind: str = "json", **options: Any
    ) -> list[str]:
        """For each payload its reason, if it is bad, and the values of its row."""
        framed = b"".join(
            struct.pack(">i", -1) if each is None else struct.pack(">i", len(each)) + each
            for each in payloads
        )
        text: str = bytes(self._probe.decode(kind, json.dumps(options), ddl, framed)).decode()
        return text.split("\n")[:-1]


def python_lines(
    ddl: str, payloads: Sequence[bytes | None], kind: str = "json", **options: Any
) -> list[str]:
    """The same by the Python decoder, one payload after the other."""
    columns = StructType.fromDDL(ddl)
    assert isinstance(columns, StructType)
    schema = to_arrow_schema(columns, timezone="UTC")
    decoder = decoder_for(SourceSpec("s", kind, schema, options))
    lines = []
    for payload in payloads:
        arrays, reasons = decode(decoder, [payload], schema)
        row = "".join(f"{_written(array[0])} " for array in arrays)
        lines.append(f"{reasons[0].as_py() or ''}\t{row}")
    return lines


def check_equal(
    java: JavaDecoder,
    ddl: str,
    payloads: Sequence[bytes | None],
    kind: str = "json",
    **options: Any,
) -> None:
    """Decode the payloads by both, and show those that differ."""
    ours = java.lines(ddl, payloads, kind, **options)
    theirs = python_lines(ddl, payloads, kind, **options)
    found = zip(payloads, ours, theirs, strict=True)
    assert [(payload, ours, theirs) for payload, ours, theirs in found if ours != theirs] == []


def escaped(line: str) -> str:
    """Java and Python may know characters of another Unicode: those that are new are escaped."""
    return line.encode("ascii", "backslashreplace").decode()


def _written(value: Any) -> str:
    """One value as `DecoderProbe.java` writes it."""
    if not value.is_valid:
        return "null"
    kind = value.type
    if pat.is_list(kind):
        return f"[{''.join(f'{_written(item)},' for item in value.values)}]"
    if pat.is_map(kind):
        entries = ((item["key"], item["value"]) for item in value.values)
        return f"<{''.join(f'{_written(key)}={_written(item)},' for key, item in entries)}>"
    if pat.is_struct(kind):
        return f"({''.join(f'{_written(value[field.name])},' for field in kind)})"
    return next(write(value) for matches, write in _LEAVES if matches(kind))


def _bits(number: float, *, is_double: bool) -> str:
    if number != number:  # noqa: PLR0124  NaN, of which Java knows one
        number = float("nan")
    packed = struct.pack(">d" if is_double else ">f", number)
    return packed.hex().lstrip("0") or "0"


_LEAVES: Sequence[tuple[Callable[[Any], bool], Callable[[Any], str]]] = (
    (pat.is_boolean, lambda value: str(int(value.as_py()))),
    (pat.is_integer, lambda value: str(value.as_py())),
    (pat.is_float32, lambda value: _bits(value.as_py(), is_double=False)),
    (pat.is_float64, lambda value: _bits(value.as_py(), is_double=True)),
    (pat.is_decimal, lambda value: str(int(value.as_py().scaleb(value.type.scale, _WIDE)))),
    (lambda kind: pat.is_timestamp(kind) or pat.is_date32(kind), lambda value: str(value.value)),
    (
        lambda kind: pat.is_string(kind) or pat.is_binary(kind),
        lambda value: f"x{value.as_buffer().to_pybytes().hex()}",
    ),
)
