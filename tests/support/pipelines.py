"""Pipeline files for tests: a valid one, and variations of it."""

from __future__ import annotations

from pathlib import Path

from onceflow.pipeline.file.loader import PipelineFile, load_pipeline

CLICKS = """\
  clicks:
    kafka: {topics: [clicks]}
    schema: "user STRING, page STRING, ms BIGINT, at TIMESTAMP, price DOUBLE, _key BINARY"
    event_time: at
    lateness: 10 seconds
"""
ORDERS = """\
  orders:
    kafka: {topics: [orders]}
    schema: "user STRING, placed BIGINT, cents INT"
    event_time: timestamp_millis(placed)
    lateness: 10 seconds
"""
TIMELESS = """\
  timeless:
    kafka: {topics: [timeless]}
    schema: "user STRING, page STRING"
"""
COUNT_PER_MINUTE = (
    "SELECT page, window.start AS minute, count(*) AS views"
    " FROM clicks GROUP BY page, window(at, '1 minute')"
)


def pipeline_text(
    query: str = COUNT_PER_MINUTE,
    *,
    sources: str = CLICKS,
    sink: str = "kafka: {topic: views, partitions: 1}",
    transform: str = "",
) -> str:
    """A pipeline file. The query begins in the line after `query:`; `transform` replaces it."""
    indented = query.replace("\n", "\n  ")
    computed = f"transform: {transform}" if transform else f"query: |\n  {indented}"
    sink_lines = sink.replace("\n", "\n  ")
    return (
        "apiVersion: onceflow/v1\n"
        "name: views\n"
        f"{computed}\n"
        f"sink:\n  {sink_lines}\n"
        f"sources:\n{sources}"
    )


NOW_MS = 1_780_000_000_000
"""Some day in 2026."""
QUERY_LINE = 4
"""Line of the query's first line in a `pipeline_text`."""


def write_pipeline(folder: Path, text: str) -> PipelineFile:
    """Load `text` from a file in `folder`."""
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return load_pipeline(path)
