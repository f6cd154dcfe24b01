"""Which Kafka the tests run on: the current one, or the one of a year ago."""

from __future__ import annotations

import os

from onceflow.devkit.jars import jar_set

VARIABLE = "ONCEFLOW_TEST_KAFKA"
"""A version of the list below; the current one if it is not set."""
SETS = {"": "broker", "4.1": "broker-4.1"}
"""The set of jars of each."""


def kafka_jars() -> str:
    """The set of jars that the brokers of this run are started from."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in SETS:
        raise ValueError(f"{VARIABLE} is {wanted!r}; there are {', '.join(filter(None, SETS))}")
    return SETS[wanted]


def kafka_title() -> str:
    """Such as `Kafka 4.3.1`, for reports."""
    name = next(name for name in jar_set(kafka_jars()).sha256 if name.startswith("kafka_"))
    return f"Kafka {name.rpartition('-')[2].removesuffix('.jar')}"
