"""The block `postgres` of a delivery file. Imports no driver: a file is checked without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from onceflow.columns import Columns
from onceflow.contracts.block import Combination
from onceflow.contracts.target import Target
from onceflow.contracts.target_block import TargetBlock, TargetSpec
from onceflow.contracts.values import ColumnNames, fault
from onceflow.errors import ConfigError, Fault, did_you_mean
from onceflow.protocol.guarantee import Guarantee, Level


def _checked_table(name: str) -> str:
    if not all(name.split(".")) or name.count(".") > 1:
        raise fault("not the name of a table", expected="`table` or `schema.table`")
    return name


class PostgresBlock(TargetBlock):
    """A table in PostgreSQL. Rows and position are written in one transaction."""

    dsn_file: str = Field(
        min_length=1,
        description="File with the connection string, such as `postgresql://user@host/database`."
        " Relative to the delivery file. Only this file may hold the password.",
    )
    table: Annotated[str, AfterValidator(_checked_table)] = Field(
        min_length=1, description="The table, perhaps with its schema. It must exist."
    )
    mode: Literal["upsert", "append"] = Field(
        description="`upsert`: one row for each key, the newest; `append`: a row for each record."
    )
    key: ColumnNames = Field(
        default=(),
        strict=False,
        description="With `upsert`: column, or list of columns, of a unique index of the table.",
    )
    revision: str | None = Field(
        default=None,
        min_length=1,
        description="With `upsert`: a column whose higher value is the newer row, such as the"
        " `revision` of a pipeline's sink. Left out: the later record is the newer.",
    )
    deletes: bool = Field(
        default=False,
        description="With `upsert`: whether a record without a value deletes the row of its key."
        " Left out, it is rejected.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """A key exactly for upserts."""
        if given.get("mode") == "upsert" and not given.get("key"):
            yield (), fault("`mode: upsert` without `key`", suggestion="Name the key's columns.")
        if given.get("mode") == "append":
            for name in ("key", "revision", "deletes"):
                if given.get(name):
                    what = f"`{name}` means nothing to `mode: append`"
                    yield (name,), fault(what, suggestion="Remove it, or set `mode: upsert`.")

    def target(self, spec: TargetSpec) -> Target:
        try:
            from onceflow_connectors.postgres.target import PostgresTarget  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(
                "the driver of PostgreSQL is missing",
                found=f"{type(error).__name__}: {error}",
                then="run `pip install 'onceflow[postgres]'`",
            ) from error
        return PostgresTarget(self, spec)

    def faults(self, columns: Columns) -> Iterator[tuple[str, Fault]]:
        named = [("key", name) for name in self.key]
        if self.revision is not None:
            named.append(("revision", self.revision))
        for key, name in named:
            if name not in columns.names:
                expected = f"one of {', '.join(columns.names)}"
                suggestion = did_you_mean(name, columns.names)
                yield key, Fault(f"`{name}` is not in `schema`", "", None, expected, suggestion)
        if self.revision in self.key:
            suggestion = "Name a column that rises with each change of a row."
            yield "revision", Fault("the revision is a part of the key", suggestion=suggestion)

    def guarantee(self) -> Guarantee:
        return Guarantee(Level.EXACTLY_ONCE, f"from the topic to the table {self.table}")

    def describe(self) -> str:
        return f"PostgreSQL, table {self.table}, {self.mode}"

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset(self.key) | ({self.revision} if self.revision else set())

    @property
    def deletes_by(self) -> tuple[str, ...]:
        return self.key if self.deletes else ()
