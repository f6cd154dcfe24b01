"""Each log line of Spark's JVM is one that collectors of logs understand."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

HOSTILE = 'a "quoted" line\nand another \x1b[2J\tone'


def test_an_error_with_its_stack_is_one_json_object(spark: SparkSession) -> None:
    assert not sys.stderr.isatty(), "run pytest without `-s`: on a terminal the log is text"
    java = spark._jvm
    assert java is not None
    core = java.org.apache.logging.log4j.core
    context = java.org.apache.logging.log4j.LogManager.getContext(False)
    layout = context.getConfiguration().getAppender("stderr").getLayout()

    def line(thrown: object) -> str:
        event = core.impl.Log4jLogEvent.newBuilder().setThrown(thrown).setLoggerName("org.some.Of")
        event = event.setMessage(java.org.apache.logging.log4j.message.SimpleMessage(HOSTILE))
        event = event.setLevel(java.org.apache.logging.log4j.Level.ERROR).setTimeMillis(7)
        return str(layout.toSerializable(event.build()))

    plain = {"ts": 7, "level": "error", "event": HOSTILE, "logger": "org.some.Of"}
    assert json.loads(line(None)) == plain
    failed = line(java.java.lang.IllegalStateException("why", java.java.lang.Error("at first")))
    assert failed.count("\n") == 1
    assert failed.endswith("\n")
    told = json.loads(failed)
    assert {name: told[name] for name in plain} == plain
    assert told["exception"].startswith("java.lang.IllegalStateException: why\n\tat ")
    assert "\nCaused by: java.lang.Error: at first\n" in told["exception"]
