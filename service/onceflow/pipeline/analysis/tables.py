"""Looks at the files of references before a run does."""

from __future__ import annotations

from collections.abc import Iterator

from onceflow.errors import Fault
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.references.table import RefusedTableError, table_of_file


def file_faults(file: PipelineFile) -> Iterator[Fault]:
    """Tell what a run would refuse about them now; a file may still change, or come."""
    for name, block in file.pipeline.references.items():
        if block.file is None:
            continue
        path = file.pipeline.folder / block.file
        try:
            table_of_file(block.reference, path.suffix, path.read_bytes())
        except OSError as error:
            found = f"it cannot be read: {error.strerror}"
        except RefusedTableError as error:
            found = str(error)
        else:
            continue
        fault = Fault(f"the file of the reference `{name}` cannot be used now: {found}")
        yield file.fault_at(Rule.WRONG_VALUE, fault, ("references", name, "file"))
