"""Read Onceflow's output and see each record once. Needs neither Spark nor Arrow.

    from onceflow_connectors.consumer import Consumer

    with Consumer("127.0.0.1:9092", group="reader", topics=["page-views"]) as records:
        for record in records:
            print(record.value)
            records.commit()

`Consumer` is the flavour of confluent-kafka; `onceflow_connectors.consumer.kafka_python.Consumer`
has the same interface.
"""

from onceflow.contracts.record import Record
from onceflow_connectors.consumer.admission import (
    Counters,
    Divergence,
    Gap,
    GenerationChange,
    Hooks,
    LineageChange,
    OnFault,
    OnForeign,
    Rules,
)
from onceflow_connectors.consumer.confluent import Consumer
from onceflow_connectors.consumer.reader import FilteringConsumer
from onceflow_connectors.consumer.records import Partition, Position

__all__ = [
    "Consumer",
    "Counters",
    "Divergence",
    "FilteringConsumer",
    "Gap",
    "GenerationChange",
    "Hooks",
    "LineageChange",
    "OnFault",
    "OnForeign",
    "Partition",
    "Position",
    "Record",
    "Rules",
]
