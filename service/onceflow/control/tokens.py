"""Bearer tokens: kept as hashes, compared in constant time.

A line of the file is `ROLE NAME SHA256`. The token itself is 256 random bits, which no table of
hashes covers, so a plain hash of it is enough.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from onceflow.errors import ConfigError, Fault

TOKEN_BYTES = 32
_LINE = re.compile(r"(?P<role>read|write) (?P<name>[A-Za-z0-9._-]{1,64}) (?P<sha256>[0-9a-f]{64})")


class Role(StrEnum):
    """The rights of a caller."""

    READ = "read"
    WRITE = "write"

    def covers(self, needed: Role) -> bool:
        """Whether this role includes the other."""
        return self is Role.WRITE or needed is Role.READ


@dataclass(frozen=True)
class Caller:
    """A client that was let in."""

    name: str
    role: Role


class Tokens:
    """All known tokens. The file is read at each request, so that it can be rotated.

    Raises:
        ConfigError: as `read_tokens`.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        read_tokens(file)

    def caller_with(self, digest: str) -> Caller | None:
        """The owner of the token with this digest, found in constant time for each token.

        Raises:
            ConfigError: the file cannot be read any more; no one is let in.
        """
        found = None
        for sha256, caller in read_tokens(self._file):
            if hmac.compare_digest(sha256, digest):
                found = caller
        return found


def read_tokens(file: Path) -> Sequence[tuple[str, Caller]]:
    """The digest and the owner of each token.

    Raises:
        ConfigError: lists every invalid line, without its content, which may be a secret.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "cannot read the tokens",
            subject=str(file),
            expected="a text file",
            found=getattr(error, "strerror", None) or type(error).__name__,
        ) from error
    known, faults = [], []
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            expected = "`read` or `write`, a name, and the SHA-256 of a token in hex"
            faults.append(Fault("not a token", line=number, expected=expected))
        else:
            known.append((match["sha256"], Caller(match["name"], Role(match["role"]))))
    if faults:
        raise ConfigError("tokens refused", subject=str(file), faults=tuple(faults))
    return known


def digest_of(token: str) -> str:
    """The hash of a token, which is all that is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def line_of(token: str, role: Role, name: str) -> str:
    """The line for the file.

    Raises:
        ConfigError: the name is not allowed.
    """
    line = f"{role} {name} {digest_of(token)}"
    if _LINE.fullmatch(line) is None:
        expected = "1 to 64 of A-Z, a-z, 0-9, dot, dash and underscore"
        raise ConfigError("not a name for a token", expected=expected, found=name)
    return line
