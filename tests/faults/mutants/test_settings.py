"""Settings of Spark that would break exactly once are refused, each by name."""

from __future__ import annotations

import pytest

from onceflow.errors import ConfigError
from onceflow.runtime.spark.session import check_conf

STREAMING = "spark.sql.streaming"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.speculation", "true"),
        (f"{STREAMING}.stateStore.checkpointFormatVersion", "1"),
        (f"{STREAMING}.asyncProgressTrackingEnabled", "true"),
        (f"{STREAMING}.realTimeMode.enabled", "true"),
        (f"{STREAMING}.forceDeleteTempCheckpointLocation", "true"),
    ],
)
def test_a_setting_that_breaks_exactly_once_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_conf({name: value})
    assert [fault.where for fault in raised.value.faults] == [name]
