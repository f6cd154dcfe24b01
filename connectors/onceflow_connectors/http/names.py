"""URLs and headers of a delivery file: what is allowed, and what messages show of it. Pure.

Faults never repeat a value, which may be a secret.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from onceflow.contracts.values import fault

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
"""A token of RFC 9110, of a length that servers take."""
_VALUE = re.compile(r"[\x20-\x7e]{0,8000}")
"""No control characters: a line break would begin another header."""
_OUR_PREFIX = "onceflow-"
_OURS = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
"""Written by the delivery, or about the connection and the form of the body."""
_SECRET = re.compile(r"authorization|cookie|token|secret|password|api-?key|credential", re.ASCII)


def checked_url(url: str) -> str:
    """Return a URL that a request can go to, as it is written.

    Raises:
        PydanticCustomError: it is none, or holds a password.
    """
    expected = "`https://host/path`"
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise fault("not a URL", expected=expected) from None
    if parts.scheme not in {"https", "http"} or not is_whole:
        raise fault("not a URL", expected=expected)
    if not url.isascii() or not url.isprintable() or " " in url:
        raise fault("not a URL", expected=f"{expected}, with other characters percent-encoded")
    if parts.username is not None or parts.password is not None:
        raise fault("a user or a password in a URL", suggestion="Use `headers_file`.")
    if "#" in url:
        raise fault("a URL with a fragment, which is not sent", expected=expected)
    return url


def is_loopback(url: str) -> bool:
    """Whether it is an address of this machine that no network sees."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def shown_url(url: str) -> str:
    """A URL as messages show it: without its query, which may hold a secret."""
    return _without(urlsplit(url), query="")


def origin_of(url: str) -> str:
    """Scheme, host and port, for an address that a stranger has sent; empty if it is not one."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    if not parts.netloc or "@" in parts.netloc or not parts.netloc.isprintable():
        return ""
    return _without(parts, path="", query="")[:200]


def _without(parts: SplitResult, **emptied: str) -> str:
    return parts._replace(fragment="", **emptied).geturl()


def checked_header_name(name: str) -> str:
    """Return the name of a header that a delivery may fill.

    Raises:
        PydanticCustomError: it is not a name, or one that has a meaning already.
    """
    if not _NAME.fullmatch(name):
        raise fault("not the name of a header", expected="1 to 100 letters, digits and hyphens")
    if name.lower() in _OURS or name.lower().startswith(_OUR_PREFIX):
        raise fault(f"the delivery writes `{name}` itself", suggestion="Remove it.")
    return name


def checked_plain_header(name: str, value: str) -> None:
    """Accept a header of the delivery file, which may not hold a secret.

    Raises:
        PydanticCustomError: it is not a header, or its name is that of a secret.
    """
    checked_header_name(name)
    if _SECRET.search(name.lower()):
        raise fault(f"`{name}` is for a secret", suggestion="Put it into `headers_file`.")
    if not is_header_value(value):
        what = f"`{name}` has a value that cannot be sent"
        raise fault(what, expected="printable ASCII on one line")


def is_header_value(value: str) -> bool:
    """Whether a text can be sent as it is."""
    return _VALUE.fullmatch(value) is not None and value == value.strip()
