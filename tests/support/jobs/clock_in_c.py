"""A pipeline that computes other rows at every replay, in a way that no analysis can see."""

from __future__ import annotations

from pathlib import Path

from tests.support.jobs.views import ViewsJob

CODE = """\
import ctypes
from pyspark.sql.functions import udf

def stamp(page):
    return f"{page} at {ctypes.CDLL(None).time(None)}"

def stamped(clicks):
    return clicks.select("page", udf(stamp)("page").alias("stamped"))
"""


def write_clock_in_c(job: ViewsJob) -> Path:
    """The job's file with this function instead of its query."""
    module = f"clock_{job.name.replace('-', '_')}"
    (job.folder / f"{module}.py").write_text(CODE)
    file = job.write_file()
    before, _, after = file.read_text().partition("query: |")
    file.write_text(f"{before}transform: {module}:stamped\n{after[after.index('sink:') :]}")
    return file
