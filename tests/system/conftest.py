"""What tests of the whole stand on."""

from __future__ import annotations

from tests.integration.conftest import _closed_attempts

__all__ = ["_closed_attempts"]
