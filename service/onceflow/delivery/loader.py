"""From a file to a `Delivery`, or to every fault in it at once, each with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from onceflow.contracts.target_block import SenderBlock
from onceflow.delivery.formats import wrong_columns
from onceflow.delivery.model import Carriage, Delivery, delivery_model
from onceflow.errors import Fault
from onceflow.pipeline.file.loader import load_file
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.text.yaml_text import Document

C = TypeVar("C", bound=Carriage)


@dataclass(frozen=True)
class DeliveryFile:
    """A delivery and the file that it came from."""

    path: Path
    delivery: Delivery


def load_delivery(path: Path) -> DeliveryFile:
    """Read and check a delivery file, without Kafka and without the target.

    Raises:
        ConfigError: lists every fault.
    """
    delivery = load_carriage(path, delivery_model(), _misfits)
    delivery.source.payload(delivery.folder)  # refuses a schema file that cannot be used
    return DeliveryFile(path, delivery)


def load_carriage(
    path: Path, model: type[C], misfits: Callable[[C, Document], Iterable[Fault]]
) -> C:
    """Read and check a file of one kind, without Kafka and without a target.

    Args:
        path: of the file.
        model: of its kind.
        misfits: finds what does not go together, in a file whose every part is right.

    Raises:
        ConfigError: lists every fault.
    """
    return load_file(path, model, misfits).located_in(path.resolve().parent)


def _misfits(delivery: Delivery, document: Document) -> Iterator[Fault]:
    to = delivery.to
    is_given = "when_key_expires" in delivery.retry.model_fields_set
    if is_given and not isinstance(to.block, SenderBlock):
        what = f"this means nothing to `{to.kind}`, where a record is recognised by its position"
        where = "retry.when_key_expires"
        line = document.place(("retry", "when_key_expires")).line
        yield Fault(what, where, line, suggestion="Remove it.", rule=Rule.WRONG_VALUE)
    for what in wrong_columns(delivery.source.format, delivery.source.columns):
        line = document.place(("from", "schema")).line
        yield Fault(what, "from.schema", line, rule=Rule.WRONG_VALUE)
    if to.block.takes != "records" and not delivery.source.columns.names:
        line = document.place(("from",)).line
        what = f"`{to.kind}` needs the columns of a row"
        yield Fault(
            what,
            "from",
            line,
            expected='`schema: "page STRING, views BIGINT"` with its columns',
            rule=Rule.MISSING_KEY,
        )
        return
    for key, found in to.block.faults(delivery.source.columns):
        path = ("to", to.kind, key)
        line = document.place(path).line
        yield replace(found, where=".".join(path), line=line, rule=Rule.WRONG_VALUE)
