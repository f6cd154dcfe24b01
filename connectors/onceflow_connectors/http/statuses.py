"""Decides what a status of HTTP says about a request: who has it, and what follows. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from http import HTTPStatus

from onceflow.contracts.values import fault

SUCCESS = frozenset(range(200, 300))
REJECT = frozenset({400, 413, 422})
"""By default: the request itself is wrong or too large, and nothing else is."""
NEVER_OF_A_RECORD = frozenset({401, 407, 408, 425, 429, 502, 503, 504})
"""About credentials, time and load: they neither take a record nor refuse it for good."""
_RETRY = frozenset({408, 409, 423, 425, 429})
_FINAL_SERVER_ERRORS = frozenset({501, 505})
"""A method or a protocol that the server does not have: time does not change it."""
_BUSY = frozenset({429, 503})
MAX_RETRY_AFTER_S = 3600.0
"""A receiver that names a longer time is asked again after this one."""
_STATUS = re.compile(r"([2-5]\d\d)(?:-([2-5]\d\d))?")


class Meaning(Enum):
    """The consequence of a status."""

    ACKNOWLEDGED = auto()
    REFUSED = auto()
    """The receiver will never take this request."""
    RETRY = auto()
    MISCONFIGURED = auto()
    """No retry changes it, and it is not about one record: credentials, address, method."""


def meaning_of(status: int, success: frozenset[int], reject: frozenset[int]) -> Meaning:
    """Judge a status by the lists of the delivery file, and then by what HTTP says of it."""
    if status in success:
        return Meaning.ACKNOWLEDGED
    if status in reject:
        return Meaning.REFUSED
    if status in _RETRY or (status >= 500 and status not in _FINAL_SERVER_ERRORS):
        return Meaning.RETRY
    return Meaning.MISCONFIGURED


def is_busy(status: int) -> bool:
    """Whether the receiver as a whole takes no more requests for now."""
    return status in _BUSY


def is_well(status: int) -> bool:
    """Whether a receiver that answers a probe so can be sent records.

    An answer that it does not know the method or the address of a probe is a sign of life.
    """
    return status != 429 and (status < 500 or status in _FINAL_SERVER_ERRORS)


def status_text(status: int) -> str:
    """A status in our words; those of the receiver may hold anything."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def retry_after_s(header: str, unix_ms: int) -> float:
    """Seconds that a receiver asks to be left alone; 0 if its header cannot be read.

    Args:
        header: seconds, or an instant as HTTP writes it.
        unix_ms: now.
    """
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), MAX_RETRY_AFTER_S)
    try:
        until = parsedate_to_datetime(text)
        left_s = until.replace(tzinfo=until.tzinfo or UTC).timestamp() - unix_ms / 1000
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, min(left_s, MAX_RETRY_AFTER_S))


def parse_statuses(value: object) -> frozenset[int]:
    """Read a list of statuses and ranges of them, as a delivery file has it."""
    found: set[int] = set()
    if not isinstance(value, list):
        raise fault("not a list", expected="such as `[200-299]`")
    for each in value:
        text = str(each) if isinstance(each, int | str) else ""
        parts = _STATUS.fullmatch(text.replace(" ", ""))
        if parts is None:
            raise fault("not a status", expected="a number such as 200, or a range: 200-299")
        found.update(range(int(parts[1]), int(parts[2] or parts[1]) + 1))
    return frozenset(found)


def allowed_success(found: frozenset[int]) -> frozenset[int]:
    """Return statuses by which a receiver can say that it has a record."""
    return _allowed(found, lambda n: n // 100 in {2, 4}, "200 to 299, or 400 to 499")


def allowed_reject(found: frozenset[int]) -> frozenset[int]:
    """Return statuses by which a receiver can say that it will never take a record."""
    return _allowed(found, lambda n: n >= 400, "400 to 599")


def _allowed(
    found: frozenset[int], is_allowed: Callable[[int], bool], expected: str
) -> frozenset[int]:
    wrong = sorted(n for n in found if n in NEVER_OF_A_RECORD or not is_allowed(n))
    if wrong or not found:
        never = ", ".join(map(str, sorted(NEVER_OF_A_RECORD)))
        numbers = ", ".join(map(str, wrong[:5])) or "no status at all"
        raise fault(f"not possible here: {numbers}", expected=f"{expected}, but not {never}")
    return found
