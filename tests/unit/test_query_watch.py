"""What is looked at while a query runs may end it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from onceflow.errors import RetriableError
from onceflow.runtime.query import RunningQuery
from tests.support.clock import ManualClock


class EndlessQuery:
    """As much of Spark's as a watch needs."""

    lastProgress = None
    is_stopped = False

    def awaitTermination(self, _: float) -> bool:
        return False

    def stop(self) -> None:
        self.is_stopped = True


def test_an_error_of_a_watch_stops_the_query() -> None:
    spark = EndlessQuery()
    query = RunningQuery(cast("Any", spark), cast("Any", None), cast("Any", None), ManualClock())
    looks: list[int] = []

    def look() -> None:
        assert not spark.is_stopped
        looks.append(1)
        if len(looks) == 3:
            raise RetriableError("seen")

    with pytest.raises(RetriableError, match="seen"):
        query.watch(lambda: False, lambda _: None, [look])
    assert spark.is_stopped
