"""Reads secret headers and certificates from files. No error shows what is in them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from pydantic_core import PydanticCustomError

from onceflow.errors import ConfigError
from onceflow_connectors.http.endpoint import Endpoint
from onceflow_connectors.http.names import checked_header_name, is_header_value

MAX_HEADERS_BYTES = 16 * 1024
EXPECTED = "`Name: value` in printable ASCII, one header a line"


def secret_headers(block: Endpoint, folder: Path) -> Mapping[str, str]:
    """Read `headers_file` as it is now. Blank lines, and lines that begin with `#`, are left out.

    Raises:
        ConfigError: there is no such file, or it does not hold headers.
    """
    if block.headers_file is None:
        return {}
    file = folder / block.headers_file
    taken = set(block.own_headers)
    found: dict[str, str] = {}
    for number, line in enumerate(_lines(file), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = (part.strip() for part in line.partition(":"))
        where = f"{file}, line {number}"
        if not colon or not value or not is_header_value(value):
            raise ConfigError(
                "`headers_file` has a line that is not a header",
                subject=where,
                expected=EXPECTED,
                then="nothing was sent",
            )
        try:
            checked_header_name(name)
        except PydanticCustomError as error:
            what = "`headers_file` has a header that it may not have"
            raise ConfigError(what, subject=where, found=error.message()) from None
        if name.lower() in taken:
            raise ConfigError("a header is named twice", subject=where, then="nothing was sent")
        taken.add(name.lower())
        found[name] = value
    return found


def tls_context(block: Endpoint, folder: Path) -> ssl.SSLContext:
    """Read the certificates that `block` names as they are now.

    Raises:
        ConfigError: one of the files cannot be read, or does not hold what it should.
    """
    what, named = "", ""
    try:
        what, named = "ca_file", block.ca_file or ""
        context = ssl.create_default_context(cafile=str(folder / named) if named else None)
        if block.certificate_file is not None and block.key_file is not None:
            what, named = "certificate_file` and `key_file", block.certificate_file
            key = str(folder / block.key_file)
            # With an empty password: without any, a terminal would be asked for one.
            context.load_cert_chain(str(folder / named), key, password="")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
        raise ConfigError(
            f"cannot use `{what}`",
            subject=str(folder / named),
            expected="PEM files that this process may read, a key without a password",
            found=reason or type(error).__name__,
            then="nothing was sent",
        ) from None
    return context


def _lines(file: Path) -> list[str]:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_HEADERS_BYTES + 1)
        if len(content) <= MAX_HEADERS_BYTES:
            return content.decode("ascii").splitlines()
        found = f"more than {MAX_HEADERS_BYTES} bytes"
    except OSError as error:
        found = error.strerror or type(error).__name__
    except UnicodeDecodeError:
        found = "bytes that are not ASCII"
    then = "nothing was sent"
    raise ConfigError("cannot read `headers_file`", subject=str(file), found=found, then=then)
