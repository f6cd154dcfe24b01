"""From a file to an `Enrichment`, or to every fault in it at once, each with its line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from onceflow.delivery.loader import load_carriage
from onceflow.enrichment.model import Enrichment
from onceflow.errors import Fault, unknown_name
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.text.yaml_text import Document


def load_enrichment(path: Path, *, may_run_code: bool = True) -> Enrichment:
    """Read and check an enrichment file, without Kafka, the service, and the user's code.

    Args:
        path: of the file.
        may_run_code: whether this process may run code that the file brings.

    Raises:
        ConfigError: lists every fault.
    """
    return load_carriage(path, Enrichment, partial(_misfits, may_run_code))


def _misfits(may_run_code: bool, enrichment: Enrichment, document: Document) -> Iterator[Fault]:
    for path, found in _faults(enrichment, may_run_code=may_run_code):
        line = document.place(path).line
        yield replace(found, where=".".join(path), line=line, rule=Rule.WRONG_VALUE)


def _faults(
    enrichment: Enrichment, *, may_run_code: bool
) -> Iterator[tuple[tuple[str, ...], Fault]]:
    ask, columns, column = enrichment.ask, enrichment.source.columns, enrichment.answer.column
    if ask.http is not None:
        yield from ((("ask", "http", "url"), found) for found in ask.http.faults(columns))
    if ask.python is not None and not may_run_code:
        yield (
            ("ask", "python", "coroutine"),
            Fault(
                "enrichment files may not bring Python code here",
                expected="`http`",
                suggestion="Set `transforms: true` if you trust the authors of these files.",
            ),
        )
    for name in (ask.cache and ask.cache.by) or ():
        if name not in columns.names:
            yield ("ask", "cache", "by"), unknown_name("no column", name, columns.names)
    if column in {name.lower() for name in columns.names}:
        what = f"`{column}` is a column of the records already"
        yield ("answer", "as"), Fault(what, suggestion="Name another one.")
