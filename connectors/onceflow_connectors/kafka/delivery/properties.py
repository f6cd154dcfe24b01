"""Reads the file with client settings of the target cluster. No error shows a value of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from onceflow.errors import ConfigError, Fault, did_you_mean
from onceflow.foreign_settings import CLIENT, names_in

MAX_BYTES = 64 * 1024
SECURITY = names_in("""
    security.protocol sasl.mechanism sasl.username sasl.password
    sasl.oauthbearer.method sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.scope https.ca.location
    ssl.ca.location ssl.certificate.location ssl.key.location ssl.key.password
""")
"""How to sign in, and TLS; besides the settings that hold no secret."""
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_SSL")
"""Not `SASL_PLAINTEXT`: the password or token would cross the network in clear text."""


def read_properties(file: Path) -> Mapping[str, str]:
    """Read lines of `name=value`; empty ones and those that begin with `#` are left out.

    Raises:
        ConfigError: the file cannot be read; or lists every line that is not allowed.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        found = (isinstance(error, OSError) and error.strerror) or "bytes that are not UTF-8"
        raise ConfigError("cannot read `properties_file`", subject=str(file), found=found) from None
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    given = [(n, *line.partition("=")[::2]) for n, line in lines if line and line[0] != "#"]
    properties = {name.strip(): value.strip() for _, name, value in given}
    faults = [fault for n, name, value in given for fault in _faults(n, name.strip(), value)]
    faults += _clear_text(properties)
    if faults:
        raise ConfigError(
            "`properties_file` holds what may not be set", subject=str(file), faults=tuple(faults)
        )
    return properties


def _faults(line: int, name: str, value: str) -> Iterator[Fault]:
    allowed = CLIENT | SECURITY
    if not value:
        yield Fault("no value", name[:60], line, "`name=value`")
    elif name not in allowed:
        what = "this client setting may not be set, or it was never judged"
        expected = "one that docs/security.md lists"
        yield Fault(what, name[:60], line, expected, did_you_mean(name, allowed))
    elif name == "security.protocol" and value.strip() not in PROTOCOLS:
        yield Fault("not a protocol that is allowed", name, line, f"one of {', '.join(PROTOCOLS)}")


def _clear_text(properties: Mapping[str, str]) -> Iterator[Fault]:
    is_signed = any(name.startswith("sasl.") for name in properties)
    if is_signed and properties.get("security.protocol") != "SASL_SSL":
        what = "the password or token would not be sent, or cross the network in clear text"
        yield Fault(what, "security.protocol", None, "SASL_SSL")
