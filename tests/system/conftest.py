"""What tests of the whole stand on."""

from __future__ import annotations

import pytest

from tests.integration.conftest import _closed_attempts

__all__ = ["_closed_attempts"]

LONGEST = ("test_drill.py", "test_image_twice.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These first, as in `tests/conftest.py`: each takes minutes, and waits for most of them."""
    items.sort(key=lambda item: item.path.name not in LONGEST)
