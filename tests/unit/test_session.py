"""Settings of Spark that follow from others."""

from __future__ import annotations

import pytest

session = pytest.importorskip("onceflow.runtime.session")


@pytest.mark.parametrize(
    ("most", "least"),
    [
        ("2g", "-Xms512m"),
        ("1G", "-Xms256m"),
        ("1500m", "-Xms384000k"),
        ("4194304k", "-Xms1073741824"),
        ("2gb", "-Xms512m"),
        # Written in a way that Spark may understand and we do not: Java decides.
        ("2048", ""),
        ("a lot", ""),
    ],
)
def test_the_heap_begins_with_a_quarter_of_its_bound(most: str, least: str) -> None:
    assert session._least_heap(most) == least


def test_a_local_checkpoint_has_one_checksum_of_each_file_and_any_other_has_sparks() -> None:
    checksum = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
    plain = session.SessionSettings()
    assert session._conf(plain, "/data/checkpoint", "")[checksum] == "false"
    assert checksum not in session._conf(plain, "s3a://bucket/checkpoint", "")
    wanted = session.SessionSettings(conf={checksum: "true"})
    assert session._conf(wanted, "/data/checkpoint", "")[checksum] == "true"
