"""Turns errors of the disk, the store and the library into ours, by what follows from them."""

from __future__ import annotations

import errno
import re

from deltalake.exceptions import DeltaError, DeltaProtocolError
from obstore.exceptions import BaseError

from onceflow.errors import ConfigError, OnceflowError, OutcomeUnknownError, RetriableError

FAILURES = (OSError, DeltaError, BaseError)
"""What the library and the store raise."""
_REFUSED_BY_DISK = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR})
_REFUSED = (
    "permission denied",
    "os error 13",
    "os error 30",
    "accessdenied",
    "access denied",
    "invalidaccesskeyid",
    "xadminusernotfound",
    "signaturedoesnotmatch",
    "nosuchbucket",
    "403 forbidden",
    "401 unauthorized",
)
"""Parts of texts, in lower case, of what no retry changes: rights and keys."""
_CREATED_AGAIN = "invalid table version"
_LONGEST = 300
_DECORATION = re.compile("\x1b\\[[0-9;]*m|\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}")
"""Colours, and arrows between causes."""


def failure(error: Exception, what: str, subject: str, *, in_commit: bool) -> OnceflowError:
    """Make our error for one that was raised while reading or writing a table."""
    found = one_line(error)
    text = str(error).lower()
    if _CREATED_AGAIN in text:
        return ConfigError(
            what,
            subject=subject,
            expected="the table that was opened",
            found="none, or one that was created again",
            then="nothing was written; started again, the delivery begins in that table with the"
            " first record",
        )
    is_refused = isinstance(error, OSError) and error.errno in _REFUSED_BY_DISK
    if is_refused or any(each in text for each in _REFUSED):
        then = "nothing was written; correct the rights or the keys"
        return ConfigError(what, subject=subject, found=found, then=then)
    if isinstance(error, DeltaProtocolError):
        then = "nothing was written; the table uses what the library does not know"
        return ConfigError(what, subject=subject, found=found, then=then)
    if in_commit:
        then = "the position in the table tells whether it was committed"
        return OutcomeUnknownError(what, subject=subject, found=found, then=then)
    return RetriableError(what, subject=subject, found=found)


def one_line(error: Exception) -> str:
    """The text without a path of the library's own stack."""
    text = str(error).partition("\n   0: ")[0]
    text = "".join(
        each
        for each in text.replace("\x1b[31m↳\x1b[0m", "")
        if each.isprintable() or each.isspace()
    )
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
