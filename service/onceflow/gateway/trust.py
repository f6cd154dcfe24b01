"""Whose certificates other instances of a gateway must have."""

from __future__ import annotations

import ssl
from pathlib import Path

from onceflow.errors import ConfigError


def authorities(file: Path | None) -> ssl.SSLContext | bool:
    """Whose certificates other instances must have.

    Raises:
        ConfigError: the file cannot be used.
    """
    if file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(file))
    except (OSError, ssl.SSLError) as error:
        found = getattr(error, "strerror", None) or type(error).__name__
        what = "the authorities of other instances cannot be used"
        raise ConfigError(what, subject=str(file), expected="PEM", found=found) from error
