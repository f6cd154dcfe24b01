"""What the JVM's heap begins with follows from what it may become."""

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
