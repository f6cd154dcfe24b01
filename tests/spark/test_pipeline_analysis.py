"""The analysis refuses, warns and finds facts, without a broker and without running."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from onceflow.errors import Fault
from onceflow.pipeline.analysis.analysis import Analysis, to_arrow
from tests.support.pipelines import (
    CLICKS,
    COUNT_PER_MINUTE,
    ORDERS,
    QUERY_LINE,
    TIMELESS,
)

Analyse = Callable[..., Analysis]
Faults = Callable[..., tuple[Fault, ...]]


def test_the_result_and_its_state_are_known(analysed: Analyse) -> None:
    analysis = analysed()

    assert analysis.output.simpleString() == "struct<page:string,minute:timestamp,views:bigint>"
    assert analysis.is_stateful
    assert analysis.warnings == ()


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        (COUNT_PER_MINUTE, ["page", "at"]),
        ("SELECT user FROM clicks WHERE ms > 5", ["user", "ms", "at"]),
        ("SELECT u FROM (SELECT user AS u, page FROM clicks)", ["user", "at"]),
        ("SELECT * EXCEPT (page, price) FROM clicks", ["user", "ms", "at", "_key"]),
        ("SELECT 1 AS one FROM clicks", ["at"]),
        ("SELECT explode(split(user, ' ')) AS word FROM clicks", ["user", "at"]),
        (
            "SELECT DISTINCT user, window(at, '1 minute').start AS minute FROM clicks",
            ["user", "at"],
        ),
    ],
    ids=["window", "filter", "unused inner column", "except", "constant", "explode", "distinct"],
)
def test_only_columns_that_matter_are_read(
    analysed: Analyse, query: str, columns: list[str]
) -> None:
    sink = "kafka: {topic: views, partitions: 1}\nemit: updates" if "DISTINCT" in query else ""

    analysis = analysed(query, sink=sink) if sink else analysed(query)

    assert analysis.columns["clicks"].names == columns


def test_a_union_reads_every_column_of_both_sides(analysed: Analyse) -> None:
    analysis = analysed(
        "TABLE timeless UNION ALL SELECT user, page FROM clicks", sources=CLICKS + TIMELESS
    )

    assert analysis.columns["timeless"].names == ["user", "page"]
    assert analysis.columns["clicks"].names == ["user", "page", "at"]


def test_an_event_time_expression_reads_what_it_is_made_of(analysed: Analyse) -> None:
    analysis = analysed(
        "SELECT c.user, o._event_time AS placed FROM clicks c JOIN orders o"
        " ON c.user = o.user AND o._event_time BETWEEN c.at - INTERVAL 5 SECONDS AND c.at",
        sources=CLICKS + ORDERS,
    )

    assert analysis.columns["orders"].names == ["user", "placed"]
    assert analysis.is_stateful


def test_rows_are_read_even_if_no_column_is(analysed: Analyse) -> None:
    analysis = analysed("SELECT 1 AS one FROM timeless", sources=TIMELESS)

    assert analysis.columns["timeless"].simpleString() == "struct<_offset:bigint>"


def test_all_columns_of_a_csv_payload_are_read(analysed: Analyse) -> None:
    sources = TIMELESS.replace("STRING, page", "STRING, _offset BIGINT, page")

    analysis = analysed("SELECT page FROM timeless", sources=sources + "    format: csv\n")

    assert analysis.columns["timeless"].names == ["user", "page"]


def test_columns_are_told_in_the_words_of_arrow(analysed: Analyse) -> None:
    schema = to_arrow(analysed().columns["clicks"])

    assert str(schema) == "page: string\nat: timestamp[us, tz=UTC]"


@pytest.mark.parametrize(
    ("query", "what", "help_text"),
    [
        ("SELECT usr FROM clicks", "unknown column `usr`", "Did you mean `user`?"),
        ("SELECT user FROM click", "unknown view `click`", "Did you mean `clicks`?"),
        ("SELECT counts(user) FROM clicks", "unknown function `counts`", ""),
        ("SELECT user FRM clicks", "a syntax error at or near 'clicks'", ""),
        ("DROP TABLE clicks", "a syntax error at or near 'DROP'", ""),
        ("SELECT user FROM clicks ORDER BY user", "a stream cannot be sorted", "ORDER BY"),
        (
            "SELECT user FROM clicks LIMIT 5",
            "LIMIT: which rows it takes depends on their order",
            "Filter",
        ),
        (
            "SELECT user, (SELECT max(ms) FROM clicks) AS most FROM clicks",
            "a subquery cannot read a stream",
            "JOIN",
        ),
        (
            "SELECT row_number() OVER (PARTITION BY user ORDER BY at) AS n FROM clicks",
            "functions OVER (...) are not possible on a stream",
            "window(...)",
        ),
        (
            "SELECT page, count(*) AS n FROM clicks GROUP BY page",
            "no group of this aggregation ever closes, so `emit: final` would never emit it",
            "emit: updates",
        ),
        (
            "SELECT a.user FROM clicks a JOIN clicks b ON a.user = b.user",
            "the source `clicks` is read 2 times",
            "a second source",
        ),
        (
            "SELECT c.user FROM clicks c JOIN clicks d ON window(c.at, '1 minute') = d.at",
            "window() cannot be used in the condition of a JOIN",
            "Name window() AS w in a subquery of each side",
        ),
        (
            "SELECT 1 FROM clicks c JOIN clicks d ON session_window(c.at, '1 day').start = d.at",
            "session_window() cannot be used in the condition of a JOIN",
            "Name session_window() AS w in a subquery of each side",
        ),
        (
            "SELECT user FROM clicks WHERE window(at, '1 day') = window(at, '2 days')",
            "several windows in one SELECT",
            "subquery",
        ),
        (
            "SELECT user + page + at AS sum FROM clicks",
            'Spark refuses it: Cannot resolve "(user + page)"',
            "",
        ),
    ],
    ids=lambda value: value[:30],
)
def test_a_query_that_cannot_run_is_refused_in_one_sentence(
    faults: Faults, query: str, what: str, help_text: str
) -> None:
    (fault,) = faults(query)

    assert fault.what.startswith(what)
    assert help_text in fault.suggestion
    assert (fault.where, fault.line) == ("query", QUERY_LINE)


@pytest.mark.parametrize(
    "expression",
    ["(" * 3000 + "ms" + ")" * 3000, " + ".join(["ms"] * 3000), "abs(" * 600 + "ms" + ")" * 600],
    ids=["brackets", "sum", "calls"],
)
def test_a_query_that_is_nested_without_end_is_refused(faults: Faults, expression: str) -> None:
    (fault,) = faults(f"SELECT {expression} AS x FROM clicks")

    assert fault.where == "query"
    assert re.search("nested|too complex|fails to analyse", fault.what)


def test_the_line_of_a_fault_is_that_of_the_word_in_the_query(
    faults: Faults,
) -> None:
    (fault,) = faults("SELECT user,\n       page\nFROM\n  click")

    assert fault.line == QUERY_LINE + 3


def test_an_aggregation_without_event_time_names_the_source(
    faults: Faults,
) -> None:
    (fault,) = faults("SELECT page, count(*) AS n FROM timeless GROUP BY page", sources=TIMELESS)

    assert fault.what == "no time passes for timeless, so nothing would ever be emitted"
    assert "`event_time`" in fault.expected


def test_updates_need_no_event_time_but_keep_state_for_ever(analysed: Analyse) -> None:
    analysis = analysed(
        "SELECT page, count(*) AS n FROM timeless GROUP BY page",
        sources=TIMELESS,
        sink="kafka: {topic: views, partitions: 1}\nemit: updates",
    )

    assert [w.what for w in analysis.warnings] == ["state about rows of timeless is kept forever"]


@pytest.mark.parametrize(
    ("query", "what"),
    [
        (
            (
                "SELECT user, session_window.start AS s FROM clicks"
                " GROUP BY user, session_window(at, '5 minutes')"
            ),
            "session windows cannot be emitted at every change",
        ),
        (
            (
                "SELECT c.user FROM clicks c LEFT JOIN orders o ON c.user = o.user"
                " AND o._event_time BETWEEN c.at - INTERVAL 5 SECONDS AND c.at"
            ),
            "an outer join cannot be emitted at every change",
        ),
    ],
    ids=["session", "outer join"],
)
def test_what_is_only_known_at_the_end_cannot_be_emitted_before(
    faults: Faults, query: str, what: str
) -> None:
    sources = CLICKS + ORDERS if "orders" in query else CLICKS

    (fault,) = faults(
        query, sources=sources, sink="kafka: {topic: views, partitions: 1}\nemit: updates"
    )

    assert fault.what == what
    assert fault.expected == "`emit: final`"


def test_an_outer_join_without_bounds_in_time_is_refused(
    faults: Faults,
) -> None:
    (fault,) = faults(
        "SELECT c.user FROM clicks c LEFT JOIN orders o ON c.user = o.user",
        sources=CLICKS + ORDERS,
    )

    assert fault.what == "an outer join of streams never knows when to give up waiting"


def test_a_source_that_is_not_used_is_refused(
    faults: Faults,
) -> None:
    (fault,) = faults(COUNT_PER_MINUTE, sources=CLICKS + TIMELESS)

    assert (fault.where, fault.what) == (
        "sources.timeless",
        "the source `timeless` is not used",
    )


@pytest.mark.parametrize(
    ("sink", "where", "what"),
    [
        ("kafka: {topic: t, partitions: 1, key: pge}", "key", "the result has no column `pge`"),
        (
            "kafka: {topic: t, partitions: 1, partition: page}",
            "partition",
            "the partition column is STRING",
        ),
    ],
)
def test_routing_columns_are_checked(faults: Faults, sink: str, where: str, what: str) -> None:
    (fault,) = faults(COUNT_PER_MINUTE, sink=sink)

    assert (fault.where, fault.what) == (f"sink.kafka.{where}", what)


def test_a_nested_key_is_refused(faults: Faults) -> None:
    (fault,) = faults(
        "SELECT window, count(*) AS n FROM clicks GROUP BY window(at, '1 minute')",
        sink="kafka: {topic: t, key: window}",
    )

    assert fault.where == "sink.kafka.key"
    assert fault.what.startswith("the key column is STRUCT")


@pytest.mark.parametrize(
    ("form", "query", "is_possible"),
    [
        ("text", "SELECT page FROM clicks", True),
        ("text", "SELECT user, page FROM clicks", True),
        ("text", "SELECT user, page, ms FROM clicks", False),
        ("text", "SELECT user, ms FROM clicks", False),
        ("binary", "SELECT user, _key FROM clicks", True),
        ("binary", "SELECT user, page FROM clicks", False),
        ("csv", "SELECT user, ms FROM clicks", True),
        ("csv", "SELECT user, array(ms) AS a FROM clicks", False),
        ("json", "SELECT user, array(ms) AS a FROM clicks", True),
    ],
)
def test_the_columns_must_fit_the_format(
    analysed: Analyse, faults: Faults, form: str, query: str, is_possible: bool
) -> None:
    key = "user" if "user" in query else "page"
    sink = f"kafka: {{topic: t, key: {key}}}\nformat: {form}"

    if is_possible:
        analysed(query, sink=sink)
    else:
        assert [fault.where for fault in faults(query, sink=sink)] == ["sink.format"]


def test_names_in_the_result_must_differ(faults: Faults) -> None:
    same, dotted = faults("SELECT user, page AS USER, ms AS `a.b` FROM clicks")

    assert same.what == "2 columns of the result are named `user`"
    assert dotted.what.startswith("the result's column `a.b` has a dot")


@pytest.mark.parametrize(
    ("schema", "event_time", "what"),
    [
        ("user STRNG, at TIMESTAMP", "at", "unknown type `STRNG`"),
        ("user STRING at TIMESTAMP", "at", "a syntax error at or near 'at'"),
        ("user STRING, User INT, at TIMESTAMP", "at", "the column `User` is declared twice"),
        ("user STRING NOT NULL, at TIMESTAMP", "at", "the column `user` is NOT NULL"),
        ("_event_time TIMESTAMP, x INT", "_event_time", "the name `_event_time` is kept"),
        ("at TIMESTAMP, _Tick_at INT", "at", "the name `_Tick_at` is kept"),
        ("at TIMESTAMP, _key STRING", "at", "`_key` is declared as STRING"),
        ("_timestamp TIMESTAMP", "_timestamp", "no column comes from the payload"),
        ("user STRING, at BIGINT", "at", "the column is BIGINT"),
        ("i INTERVAL YEAR, at TIMESTAMP", "at", "the column `i` is INTERVAL YEAR"),
        ("user STRING, at BIGINT", "at + 1", "the expression is BIGINT"),
        ("user STRING, at TIMESTAMP", "att", "unknown column `att`"),
        ("user STRING", "_timestamp", "unknown column `_timestamp`"),
    ],
)
def test_columns_and_event_time_of_a_source_are_checked(
    faults: Faults, schema: str, event_time: str, what: str
) -> None:
    source = (
        f'  clicks:\n    kafka: {{topics: [clicks]}}\n    schema: "{schema}"\n'
        f'    event_time: "{event_time}"\n    lateness: 1 s\n'
    )

    found = faults("SELECT 1 AS one FROM clicks", sources=source)

    assert [fault.what for fault in found if fault.what.startswith(what)]
    assert all(fault.where.startswith("sources.clicks.") for fault in found)


def test_faults_of_all_sources_come_at_once(faults: Faults) -> None:
    sources = CLICKS.replace("BIGINT", "BGINT") + ORDERS.replace("timestamp_millis(placed)", "x")

    found = faults(COUNT_PER_MINUTE, sources=sources)

    assert [fault.where for fault in found] == [
        "sources.clicks.schema",
        "sources.orders.event_time",
    ]
    assert [fault.line for fault in found] == [10, 16]


@pytest.mark.parametrize(
    ("form", "schema", "what"),
    [
        ("csv", "a ARRAY<INT>", "CSV has no nested columns, and `a` is one"),
        ("text", "a INT", "format text with payload columns of type INT"),
        ("text", "a STRING, b STRING", "format text with payload columns of type STRING, STRING"),
        ("binary", "_key BINARY", "format binary with payload columns of type none"),
    ],
)
def test_columns_of_a_source_must_fit_its_format(
    faults: Faults, form: str, schema: str, what: str
) -> None:
    source = (
        f'  clicks:\n    kafka: {{topics: [clicks]}}\n    schema: "{schema}"\n    format: {form}\n'
    )

    found = faults("SELECT 1 AS one FROM clicks", sources=source)

    assert what in [fault.what for fault in found]


AVRO = '{"type": "record", "name": "r", "fields": [{"name": "page", "type": "string"}%s]}'


@pytest.mark.parametrize(
    ("further_fields", "what"),
    [
        ("", "the Avro schema has no field `minute`"),
        (
            (
                ', {"name": "minute", "type": "long"}, {"name": "views", "type": "long"},'
                ' {"name": "total", "type": "long"}'
            ),
            "the result lacks `total`, which the Avro schema requires",
        ),
    ],
)
def test_the_columns_must_fit_the_avro_schema(
    faults: Faults, tmp_path: Path, further_fields: str, what: str
) -> None:
    (tmp_path / "out.avsc").write_text(AVRO % further_fields)

    found = faults(
        sink="kafka: {topic: t, partitions: 1}\nformat: avro\navro: {schema_file: out.avsc}"
    )

    assert what in [fault.what for fault in found]


def test_a_payload_column_that_the_avro_schema_lacks_is_named(
    faults: Faults, tmp_path: Path
) -> None:
    (tmp_path / "in.avsc").write_text(AVRO % ', {"name": "user", "type": "string"}')
    sources = TIMELESS.replace("user", "usr") + (
        "    format: avro\n    avro: {schema_file: in.avsc}\n"
    )

    (fault,) = faults("SELECT page FROM timeless", sources=sources)

    assert fault.what == "the Avro schema has no field `usr`"
    assert fault.suggestion == "Did you mean `user`?"
