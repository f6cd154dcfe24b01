"""Writes state as Parquet, for any tool to read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from onceflow.errors import ConfigError
from onceflow.runtime.state.layout import Operator
from onceflow.runtime.state.reader import StateReader


def export_state(
    reader: StateReader, operator: Operator, batch: int, folder: Path
) -> Mapping[str, int]:
    """Write every row of an operator: a file for each partition of each store that has rows.

    Returns:
        Rows by file name.

    Raises:
        ConfigError: the folder has something in it, or cannot be written.
        OnceflowError: as `StateReader`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(
                "the folder has something in it",
                subject=str(folder),
                expected="a new or an empty one",
                then="nothing was written",
            )
        return _write(reader, operator, batch, folder)
    except OSError as error:
        raise ConfigError(
            "the folder cannot be written", subject=str(folder), found=str(error)
        ) from error


def _write(reader: StateReader, operator: Operator, batch: int, folder: Path) -> Mapping[str, int]:
    written: dict[str, int] = {}
    writers: dict[str, pq.ParquetWriter] = {}
    with ExitStack() as stack:
        for store, partition, table in reader.export(operator, batch):
            name = f"{store.variable or operator.name}-{partition}.parquet"
            # Parquet has no columns without content, such as the key of a total.
            empty = pa.struct([])
            stored = table.select([each.name for each in table.schema if each.type != empty])
            if name not in writers:
                writer = pq.ParquetWriter(folder / name, stored.schema)
                writers[name] = stack.enter_context(writer)
            writers[name].write_table(stored)
            written[name] = written.get(name, 0) + table.num_rows
    return written
