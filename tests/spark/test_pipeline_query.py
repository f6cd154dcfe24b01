"""The one DataFrame of a pipeline: from SQL or from a Python function, on streams that run."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from onceflow.cli.pipeline.init import init
from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.analysis.analysis import analyse
from onceflow.pipeline.analysis.rehearsal import rehearse
from onceflow.pipeline.file.loader import PipelineFile, load_pipeline
from tests.support.pipelines import (
    CLICKS,
    NOW_MS,
    ORDERS,
    TIMELESS,
    pipeline_text,
    write_pipeline,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
Row = dict[str, Any]


def data_of(file: PipelineFile, folder: Path) -> dict[str, Path]:
    """`<topic>.jsonl` for each source."""
    sources = file.pipeline.sources.items()
    return {name: folder / f"{source.block.written['topics'][0]}.jsonl" for name, source in sources}


def in_order(rows: list[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", ["page-views", "sensors", "sessions", "trades"])
def test_an_example_gives_what_its_oracle_expects(spark: SparkSession, name: str) -> None:
    path = EXAMPLES / name / "pipeline.yaml"
    (expected,) = (EXAMPLES / name / "expected").glob("*.jsonl")

    rows = rehearse(path, data_of(load_pipeline(path), EXAMPLES / name / "data"))

    wanted = [json.loads(line) for line in expected.read_text().splitlines()]
    assert in_order(rows) == in_order(wanted)


UNION = (
    "SELECT user, window.start AS minute, count(*) AS n, sum(cents) AS cents FROM"
    " (SELECT user, at, ms AS cents FROM clicks"
    " UNION ALL SELECT user, _event_time AS at, cents FROM orders)"
    " GROUP BY user, window(at, '1 minute')"
)
SHUFFLES = 4


def test_a_union_gives_the_same_rows_in_whatever_order_its_sources_come(
    spark: SparkSession, tmp_path: Path, random: Random
) -> None:
    file = write_pipeline(tmp_path, pipeline_text(UNION, sources=CLICKS + ORDERS))
    first_ms = 1_772_323_200_000
    moments = [(f"u{n % 3}", n, first_ms + n * 1_000) for n in range(200)]
    clicks = [{"user": u, "ms": n, "at": in_iso(ms)} for u, n, ms in moments]
    orders = [{"user": u, "cents": n, "placed": ms} for u, n, ms in moments]
    found = set()
    for _ in range(SHUFFLES):
        random.shuffle(clicks)
        random.shuffle(orders)
        data = data_of(file, tmp_path)
        data["clicks"].write_text("\n".join(map(json.dumps, clicks)))
        data["orders"].write_text("\n".join(map(json.dumps, orders)))
        found.add(tuple(in_order(rehearse(file.path, data))))
    (rows,) = found
    # The last of the four minutes is still open.
    assert sum(json.loads(row)["n"] for row in rows) == 2 * 180


def in_iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def test_columns_that_are_not_read_are_null_in_their_view(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = write_pipeline(
        tmp_path,
        pipeline_text("SELECT u FROM (SELECT user AS u, page FROM timeless)", sources=TIMELESS),
    )
    (tmp_path / "timeless.jsonl").write_text('{"user": "a", "page": "/"}\n')

    assert analyse(spark, file, NOW_MS).columns["timeless"].names == ["user"]
    assert rehearse(file.path, data_of(file, tmp_path)) == [{"u": "a"}]


def test_an_event_time_expression_becomes_a_column(spark: SparkSession, tmp_path: Path) -> None:
    source = TIMELESS + "    event_time: to_timestamp(page)\n    lateness: 0 s\n"
    file = write_pipeline(
        tmp_path, pipeline_text("SELECT user, _event_time AS at FROM timeless", sources=source)
    )
    (tmp_path / "timeless.jsonl").write_text('{"user": "a", "page": "2026-03-01T00:00:00Z"}\n')

    rows = rehearse(file.path, data_of(file, tmp_path))

    assert rows == [{"user": "a", "at": "2026-03-01T00:00:00.000Z"}]


def test_views_do_not_outlive_the_query_that_needed_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    analyse(spark, write_pipeline(tmp_path, pipeline_text()), NOW_MS)

    assert not spark.catalog.tableExists("clicks")


def with_transform(module: Path, code: str) -> PipelineFile:
    module.write_text(code)
    text = pipeline_text(sources=TIMELESS, transform=f"{module.stem}:views")
    return write_pipeline(module.parent, text)


def test_a_python_function_takes_each_source_by_its_name(spark: SparkSession, module: Path) -> None:
    file = with_transform(
        module, "def views(timeless):\n    return timeless.where(\"user = 'a'\")\n"
    )
    (module.parent / "timeless.jsonl").write_text('{"user": "a", "page": "/"}\n{"user": "b"}\n')

    rows = rehearse(file.path, data_of(file, module.parent))

    assert rows == [{"user": "a", "page": "/"}]


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("", "has no views"),
        ("views = 5", "is not a function: int"),
        ("def views(clicks): ...", "the function's parameters are not the sources"),
        ("def views(timeless): ...", "the function returns something else: NoneType"),
        ("def views(timeless):\n    return 1 / 0", "ZeroDivisionError: division by zero"),
        ("def views(timeless):\n    return timeless.select('usr')", "unknown column `usr`"),
        ("import no_such_module", "cannot be imported: No module named 'no_such_module'"),
        ("def views(:", "cannot be imported"),
    ],
)
def test_a_python_function_that_cannot_serve_is_refused(
    faults: Callable[..., tuple[Fault, ...]], module: Path, code: str, what: str
) -> None:
    module.write_text(code)
    (fault,) = faults(sources=TIMELESS, transform=f"{module.stem}:views")
    assert what in fault.what
    assert (fault.where, fault.line) == ("transform", 3)


def test_functions_of_the_users_module_run_on_workers(spark: SparkSession, module: Path) -> None:
    (module.parent / f"{module.stem}_words.py").write_text("SUFFIX = '!'\n")
    code = (
        "from pyspark.sql.functions import udf\n"
        f"from {module.stem}_words import SUFFIX\n"
        "def shouted(text):\n"
        "    return text.upper() + SUFFIX\n"
        "def views(timeless):\n"
        "    return timeless.select(udf(shouted)('user').alias('user'))\n"
    )
    file = with_transform(module, code)
    (module.parent / "timeless.jsonl").write_text('{"user": "ann"}\n')

    assert rehearse(file.path, data_of(file, module.parent)) == [{"user": "ANN!"}]


def test_data_must_be_of_the_pipelines_sources(spark: SparkSession, tmp_path: Path) -> None:
    file = write_pipeline(tmp_path, pipeline_text())

    with pytest.raises(ConfigError, match="data for other sources; expected clicks; found views"):
        rehearse(file.path, {"views": tmp_path})


def test_a_new_pipeline_passes_the_test_that_comes_with_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    init("my-views")

    test = runpy.run_path(str(tmp_path / "my-views" / "test_pipeline.py"))
    test["test_views_are_counted_per_page_and_minute"]()
