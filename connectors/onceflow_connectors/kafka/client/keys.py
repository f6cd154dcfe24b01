"""Private keys as Kafka's Java client reads them: PKCS 8, which says what kind a key is."""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Mapping

_KEY = re.compile(r"-----BEGIN (RSA|EC) PRIVATE KEY-----(.*?)-----END \1 PRIVATE KEY-----", re.S)
_OCTETS, _NUMBER, _SEQUENCE, _PARAMETERS, _NAME = 0x04, 0x02, 0x30, 0xA0, 0x06
_KINDS: Mapping[str, bytes] = {
    # 1.2.840.113549.1.1.1, without parameters; 1.2.840.10045.2.1, with the name of a curve
    "RSA": bytes.fromhex("06092a864886f70d0101010500"),
    "EC": bytes.fromhex("06072a8648ce3d0201"),
}


def in_pkcs8(text: str) -> str:
    """PEM text with each older form of a key (PKCS 1, SEC 1) in the form of PKCS 8.

    Raises:
        ValueError: such a key is encrypted, or is none.
    """
    return _KEY.sub(lambda found: _rewritten(found[1], found[2]), text)


def _rewritten(kind: str, body: str) -> str:
    if "ENCRYPTED" in body:
        what = "Java reads encrypted keys in PKCS 8 only; `openssl pkcs8 -topk8` makes one"
        raise ValueError(what)
    key = base64.b64decode("".join(body.split()), validate=True)
    algorithm = _KINDS[kind] + (_curve(key) if kind == "EC" else b"")
    made = _part(
        _SEQUENCE,
        _part(_NUMBER, b"\0") + _part(_SEQUENCE, algorithm) + _part(_OCTETS, key),
    )
    lines = "\n".join(textwrap.wrap(base64.b64encode(made).decode(), 64))
    return f"-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----"


def _part(tag: int, content: bytes) -> bytes:
    """One value in DER."""
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(length)]) + length + content


def _curve(key: bytes) -> bytes:
    """The name of a curve from a key, in DER: after its version and its secret.

    Raises:
        ValueError: there is none.
    """
    inside, _ = _first(key)
    for _ in range(2):
        _, inside = _first(inside)
    name, _ = _first(inside)
    if inside[:1] != bytes([_PARAMETERS]) or name[:1] != bytes([_NAME]):
        raise ValueError("the key does not name its curve; `openssl pkcs8 -topk8 -nocrypt` adds it")
    return name


def _first(values: bytes) -> tuple[bytes, bytes]:
    """Split values in DER: the content of the first, and the values after it."""
    size, at = (values[1], 2) if len(values) > 1 else (0, len(values))
    if size >= 0x80:
        at += size & 0x7F
        size = int.from_bytes(values[2:at])
    return values[at : at + size], values[at + size :]
