"""`onceflow explain` of a delivery: from its topics to its target, with the promise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onceflow.cli.pipeline.explain import WIDTH, arrow, box
from onceflow.cli.shared.output import ResultFormat, print_json
from onceflow.contracts.target_block import SenderBlock
from onceflow.delivery.loader import load_delivery
from onceflow.pipeline.analysis.explain import Passage, Station
from onceflow.protocol.identity import DELIVERIES_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from onceflow.delivery.model import Delivery


def explain_delivery(file: Path, output: ResultFormat) -> None:
    """Draw a delivery. Asks neither brokers nor the target.

    Raises:
        ConfigError: lists every fault of the file.
    """
    delivery = load_delivery(file).delivery
    guarantee = delivery.guarantee()
    if output is ResultFormat.JSON:
        found = {
            "delivery": delivery.name,
            "topics": list(delivery.source.topics),
            "columns": delivery.source.columns.columns_ddl,
            "to": delivery.to.block.describe(),
            "guarantee": guarantee.level.value,
            "scope": guarantee.scope,
            "reasons": [str(reason) for reason in guarantee.reasons],
            "on_reject": delivery.rejection,
            "group": delivery.group,
        }
        print_json(found)
        return
    from onceflow.cli.shared.terminal import Terminal

    console = Terminal(width=WIDTH, highlight=False)
    for part in _picture(delivery):
        console.print(part, soft_wrap=isinstance(part, str))


def _picture(delivery: Delivery) -> Iterator[RenderableType]:
    source, batch, retry = delivery.source, delivery.batch, delivery.retry
    topics = f"topic {', '.join(source.topics)}"
    columns = f"{source.format}: {source.columns.columns_ddl}" if source.ddl else "as they came"
    yield box(Station(topics, (columns,)))
    yield from arrow(Passage("committed records, each once", "repeats are discarded"))
    tries = "until it works" if retry.attempts is None else f"{retry.attempts} times"
    most = f"{batch.max_records:,} records or {batch.max_bytes / 2**20:g} MiB"
    span = f"{retry.delay_ms / 1000:g} to {retry.max_delay_ms / 1000:g} s"
    facts: tuple[str, ...] = (
        f"reads as group {delivery.group}",
        f"writes at most {most} at once, and waits {batch.max_delay_ms:,} ms for them",
        f"tries a target that fails again {tries}, after {span}",
        _rejection(delivery),
    )
    if (age_ms := delivery.when_behind.max_age_ms) is not None:
        facts += (f"drops records that have waited for longer than {age_ms / 1000:,g} s",)
    yield box(Station(f"delivery {delivery.name}", facts))
    guarantee = delivery.guarantee()
    block = delivery.to.block
    if isinstance(block, SenderBlock):
        step, keeps = "the position moves after the answers", f"the topic {DELIVERIES_TOPIC} keeps"
    else:
        step, keeps = "records and position in one step", "keeps"
    yield from arrow(Passage(str(guarantee), step))
    yield box(Station(block.describe(), (f"{keeps} the position of the delivery",)))
    for reason in guarantee.reasons:
        yield f"\nnot more: {reason}"


def _rejection(delivery: Delivery) -> str:
    if delivery.rejection == "dead_letter" and delivery.dead_letter is not None:
        return f"rejected records go to the topic {delivery.dead_letter.topic}"
    done = {"drop": "are dropped and counted", "fail": "stop it"}
    return f"rejected records {done[delivery.rejection]}"
