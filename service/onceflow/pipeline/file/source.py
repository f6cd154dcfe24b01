"""A source in the pipeline file: what is read, how it is decoded, and when a record happened.

The kind of source is the key of a block, which says what is read: `kafka`, or another one that is
installed. A valid file imports the kinds that it names; the schema, and the suggestions for a
faulty file, need all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
)
from pydantic_core import CoreSchema

from onceflow.contracts.block import Block, Combination
from onceflow.contracts.source_block import SourceBlock, find_source, installed_sources
from onceflow.contracts.values import ColumnNames, DurationMs, IdleMs, Instant, fault
from onceflow.errors import ConfigError
from onceflow.pipeline.file.formats import SINGLE_COLUMN_SCHEMAS, Avro, Format, wrong_avro
from onceflow.pipeline.file.policies import OnReject

_NEEDS: Mapping[str, str] = {
    "event_time": "lateness",
    **dict.fromkeys(
        ("lateness", "min_event_time", "max_ahead", "idle_after", "deduplicate"), "event_time"
    ),
}
"""Key of a source -> another one that it goes with."""
_ADVICE: Mapping[str, str] = {
    "lateness": "Say how late a record may be, such as `lateness: 10 seconds`.",
    "event_time": "Name the column that says when a record happened.",
}


class Deduplicate(Block):
    """Which records of a source are duplicates."""

    key: ColumnNames = Field(
        strict=False,
        min_length=1,
        description="Column, or list of columns, that a record and its duplicates have in common,"
        " and no others. A record in which all of them are null is rejected.",
    )
    within_ms: DurationMs = Field(
        alias="within",
        description="How long a key is remembered: until the event watermark has passed the event"
        " time of its first record by so much. A record that is further behind the event watermark"
        " is late.",
    )


class Source(Block):
    """One input: a view of the query."""

    # A source of a file is of a subclass, one for each kind, in which these two are set.
    kind: ClassVar[str]
    """The key of the block in the file: the name of an entry point."""
    block: SourceBlock = Field(default_factory=SourceBlock)
    format: Format = Field(default="json", description="How the payload of a record is decoded.")
    avro: Avro | None = Field(default=None, description="The schema of Avro payloads.")
    ddl: str | None = Field(
        default=None,
        alias="schema",
        description="Columns of the view and their types, as Spark DDL. `_key BINARY`,"
        " `_topic STRING`, `_partition INT`, `_offset BIGINT`, `_timestamp TIMESTAMP`,"
        " `_value BINARY` and `_headers ARRAY<STRUCT<key: STRING, value: BINARY>>` come from"
        " the record itself, all others from its payload. Left out, text has `value STRING` and"
        " binary `value BINARY`.",
    )
    event_time: str | None = Field(
        default=None,
        min_length=1,
        description="When a record happened: a TIMESTAMP column, or an SQL expression, which"
        " becomes the column `_event_time`.",
    )
    lateness_ms: DurationMs | None = Field(
        default=None,
        alias="lateness",
        description="How far behind the newest event time a record may be. Later ones are counted"
        " and dropped.",
    )
    idle_after_ms: IdleMs | None = Field(
        default=None,
        alias="idle_after",
        description="After this long without a record, event time advances by itself, so windows"
        " close although the source is silent. At least 1 second. Left out: windows stay open"
        " until a record comes.",
    )
    min_event_time: Instant | None = Field(
        default=None,
        description="Records that claim to be older are rejected.",
    )
    max_ahead_ms: DurationMs | None = Field(
        default=None,
        alias="max_ahead",
        description="How far in the future an event time may be, seen from the record's own"
        " timestamp and from the clock of the batch, whichever is earlier. Records beyond are"
        " rejected: one of them would make all that follow late.",
    )
    required: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Columns that may not be null. Records without are rejected.",
    )
    deduplicate: Deduplicate | None = Field(
        default=None,
        description="Of records with the same key, the query sees the first; duplicates are counted"
        " and dropped. Needs `event_time`.",
    )
    on_reject: OnReject | None = Field(
        default=None,
        description="What becomes of a record that cannot be decoded or is rejected: written to"
        " the topic of `dead_letter`, dropped and counted, or the pipeline stops. Left out:"
        " `dead_letter` where the pipeline has such a topic, else `fail`.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """One kind; event time with lateness and bounds; a schema where the payload needs one."""
        if len(kinds_in(given)) != 1:
            known = " or ".join(f"`{kind}`" for kind in installed_sources())
            yield (), fault("what to read is needed exactly once", expected=known)
        for key, needed in _NEEDS.items():
            if key in given and needed not in given:
                yield (key,), fault(f"`{key}` without `{needed}`", suggestion=_ADVICE[needed])
        yield from wrong_avro(given)
        if "schema" not in given and given.get("format", "json") not in SINGLE_COLUMN_SCHEMAS:
            expected = 'Spark DDL, such as "user STRING, at TIMESTAMP"'
            yield (), fault("`schema` is missing", expected=expected)

    @property
    def columns_ddl(self) -> str:
        """The view's columns as DDL."""
        return self.ddl or SINGLE_COLUMN_SCHEMAS[self.format]

    def format_options(self, folder: Path) -> Mapping[str, str]:
        """The format's own settings, the form of `SourceSpec.format_options`.

        Raises:
            ConfigError: as `Avro.read`.
        """
        return {"schema": self.avro.read(folder)} if self.avro else {}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Have every kind that is installed in the schema; one that does not work is left out."""
        schema = handler(core_schema)
        found = handler.resolve_ref_schema(schema)
        blocks: dict[str, Any] = {}
        for kind in installed_sources():
            with suppress(ConfigError):
                block = find_source(kind)
                what = handler(block.__pydantic_core_schema__)
                blocks[kind] = {**what, "description": _purpose(block)}
        keys = {name: key for name, key in found["properties"].items() if name != "block"}
        found["properties"] = blocks | keys
        found["oneOf"] = [{"required": [kind]} for kind in blocks]
        return schema


def kinds_in(source: object) -> list[str]:
    """Kinds of which a source in a file has a block."""
    return [kind for kind in installed_sources() if isinstance(source, Mapping) and kind in source]


def _of_its_kind(data: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    match kinds_in(data):
        case [kind]:
            return _source_of(kind).model_validate(data)
        case _:
            return handler(data)


AnySource: TypeAlias = Annotated[SerializeAsAny[Source], WrapValidator(_of_its_kind)]
"""A source of the kind that its keys name."""


def _source_of(kind: str) -> type[Source]:
    try:
        return _with_block(kind, find_source(kind))
    except ConfigError as error:
        raise fault(str(error)) from error


@cache
def _with_block(kind: str, block: type[SourceBlock]) -> type[Source]:
    field = Field(alias=kind, description=_purpose(block))
    made = create_model("Source", __base__=Source, block=(block, field))
    made.kind = kind
    return made


def _purpose(block: type[SourceBlock]) -> str:
    return (block.__doc__ or "").partition("\n\n")[0]
