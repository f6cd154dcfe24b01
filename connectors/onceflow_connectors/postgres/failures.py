"""Turns errors of psycopg and of the server into ours, by what follows from them."""

from __future__ import annotations

import psycopg

from onceflow.errors import (
    ConfigError,
    CorruptionError,
    OnceflowError,
    OutcomeUnknownError,
    RecordError,
    RetriableError,
)

_PASSING = ("08", "25", "40", "53", "57", "58", "XX000", "55006", "55P03")
"""Beginnings of SQLSTATEs that pass: connection, a standby that is read-only, conflicts, resources
such as a full disk, shut-downs and time-outs, I/O, locks."""
_RECORD = ("22", "23", "54", "P0001")
"""That a row causes: data, constraints, limits such as the size of an index row, a trigger."""
_CORRUPT = ("XX001", "XX002")
_REFUSED_AT_CONNECT = (
    "password authentication failed",
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "is not permitted to log in",
    "permission denied",
    "certificate verify failed",
    "does not support SSL",
)
"""The driver has no SQLSTATE for a failed connection, only the server's English text."""


def failure(error: psycopg.Error, what: str, subject: str, *, in_commit: bool) -> OnceflowError:
    """Make our error for one that a statement raised."""
    code = error.sqlstate or ""
    # Not the detail: it shows values of rows.
    found = error.diag.message_primary or _one_line(error)
    found = f"{code} {found}".strip()
    if isinstance(error, psycopg.DataError) or code.startswith(_RECORD):
        return RecordError(what, subject=subject, found=found)
    if not code and in_commit:
        then = "the position in the table tells whether it was committed"
        return OutcomeUnknownError(what, subject=subject, found=found, then=then)
    if not code or code.startswith(_PASSING):
        return RetriableError(what, subject=subject, found=found)
    if code.startswith(_CORRUPT):
        return CorruptionError(what, subject=subject, found=found, then="nothing was written")
    return ConfigError(what, subject=subject, found=found, then="nothing was written")


def connection_failure(error: psycopg.Error, subject: str) -> OnceflowError:
    """Make our error for a connection that was not made. Its text has no password."""
    found = _one_line(error)
    if any(text in found for text in _REFUSED_AT_CONNECT):
        return ConfigError(
            "the server refuses the connection",
            subject=subject,
            found=found,
            then="nothing was written; correct the connection string in `dsn_file`",
        )
    return RetriableError("the server does not answer", subject=subject, found=found)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
