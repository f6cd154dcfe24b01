"""The block `delta` of a delivery file. Imports no library: a file is checked without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from onceflow.columns import Array, Columns, MapOf, Scalar, Type
from onceflow.contracts.block import Block, Combination
from onceflow.contracts.target import Target
from onceflow.contracts.target_block import TargetBlock, TargetSpec
from onceflow.contracts.values import ColumnNames, fault, not_yet
from onceflow.errors import ConfigError, Fault, did_you_mean
from onceflow.protocol.guarantee import Guarantee, Level

S3 = "s3://"
PARTITIONED_BY = frozenset({"string", "boolean", "tinyint", "smallint", "int", "bigint", "date"})
"""Types whose values have one form only as the text that names a partition of a table."""
_EXACT_DIGITS = 15
"""Of a number in JSON that went through a double."""


def _checked_path(path: str) -> str:
    scheme, separator, rest = path.partition("://")
    if separator and (f"{scheme}://" != S3 or not rest.strip("/")):
        raise fault("not the place of a table", expected="a folder, or `s3://bucket/prefix`")
    return path.rstrip("/") or path


def _checked_endpoint(endpoint: str) -> str:
    scheme, separator, host = endpoint.partition("://")
    if scheme not in {"http", "https"} or not separator or not host or "@" in host:
        raise fault("not the address of a store", expected="such as `https://host:port`")
    return endpoint


class StorageBlock(Block):
    """The object store of a table on S3."""

    endpoint: Annotated[str, AfterValidator(_checked_endpoint)] | None = Field(
        default=None,
        description="Address of the store, such as `https://host:port`. Left out: that of AWS.",
    )
    region: str | None = Field(
        default=None, min_length=1, description="Region of the bucket, such as `eu-central-1`."
    )
    credentials_file: str | None = Field(
        default=None,
        min_length=1,
        description="File with `aws_access_key_id` and `aws_secret_access_key` below `[default]`,"
        " as the tools of AWS have it. Relative to the delivery file. Left out: the environment, or"
        " the role of the machine.",
    )
    allow_http: bool = Field(
        default=False, description="Whether `endpoint` may be `http://`, where all can listen."
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """An address without encryption only where that was asked for."""
        if str(given.get("endpoint")).startswith("http://") and given.get("allow_http") is not True:
            suggestion = "Use `https://`, or set `allow_http: true`."
            yield ("endpoint",), fault("not encrypted", suggestion=suggestion)


class DeltaBlock(TargetBlock):
    """A table of Delta Lake, on disk or on S3. Rows and position are one commit."""

    takes = "table"

    path: Annotated[str, AfterValidator(_checked_path)] = Field(
        min_length=1,
        description="The table: a folder, relative to the delivery file or absolute, or"
        " `s3://bucket/prefix`.",
    )
    mode: Annotated[Literal["append"], not_yet("upsert")] = Field(
        default="append", description="`append`: a row for each record."
    )
    partition_by: ColumnNames = Field(
        default=(),
        strict=False,
        description="Columns by whose values rows are put into separate files. A table that exists"
        " must have the same; left out, it may have any.",
    )
    create: bool = Field(
        default=True, description="Whether a table that does not exist is created at the start."
    )
    storage: StorageBlock | None = Field(
        default=None, description="With `s3://`: which store, and as whom."
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """A store only for tables in one."""
        if given.get("storage") is not None and not str(given.get("path")).startswith(S3):
            suggestion = "Remove it, or name a path that begins with `s3://`."
            yield ("storage",), fault("a folder has no store", suggestion=suggestion)

    @property
    def is_remote(self) -> bool:
        """Whether the table is in an object store."""
        return self.path.startswith(S3)

    def target(self, spec: TargetSpec) -> Target:
        try:
            from onceflow_connectors.delta.target import DeltaTarget  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(
                "the library for Delta Lake is missing",
                found=f"{type(error).__name__}: {error}",
                then="run `pip install 'onceflow[delta]'`",
            ) from error
        return DeltaTarget(self, spec)

    def faults(self, columns: Columns) -> Iterator[tuple[str, Fault]]:
        for name in self.partition_by:
            kind = columns.by_name.get(name)
            if kind is None:
                expected = f"one of {', '.join(columns.names)}"
                suggestion = did_you_mean(name, columns.names)
                yield (
                    "partition_by",
                    Fault(f"`{name}` is not in `schema`", "", None, expected, suggestion),
                )
            elif kind.ddl not in PARTITIONED_BY:
                what = f"`{name}` is of the type {kind.ddl}"
                yield "partition_by", Fault(what, expected=", ".join(sorted(PARTITIONED_BY)))
        if self.partition_by and set(self.partition_by) >= set(columns.names):
            yield "partition_by", Fault("no column is left for the files themselves")
        for name, kind in columns.by_name.items():
            if not isinstance(kind, Scalar) and any(_is_inexact(each) for each in _scalars(kind)):
                what = f"`{name}`: a decimal inside of it has more than {_EXACT_DIGITS} digits"
                suggestion = "Make it a column of its own, or text."
                yield "path", Fault(what, suggestion=suggestion)

    def guarantee(self) -> Guarantee:
        return Guarantee(Level.EXACTLY_ONCE, f"from the topic to the table {self.path}")

    def describe(self) -> str:
        return f"Delta Lake, table {self.path}, {self.mode}"


def _scalars(kind: Type) -> Iterator[Scalar]:
    """All types without parts inside a type."""
    match kind:
        case Scalar():
            yield kind
        case Array():
            yield from _scalars(kind.item)
        case MapOf():
            yield kind.key
            yield from _scalars(kind.value)
        case Columns():
            for each in kind.types:
                yield from _scalars(each)


def _is_inexact(kind: Scalar) -> bool:
    return kind.digits is not None and kind.digits[0] > _EXACT_DIGITS
