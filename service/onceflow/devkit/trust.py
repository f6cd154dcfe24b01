"""The certificates that this system trusts, in a file that Java reads.

The packaged Java has certificates of its own and does not look at the system's, to which companies
add theirs.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from onceflow.java.choice import Java, JavaOrigin

PASSWORD = "changeit"  # noqa: S105  Java's usual one; nothing in the file is secret
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""Debian, Red Hat, SUSE. Where OpenSSL's own settings name a file, that comes first."""
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_MAGIC, _FORMAT, _TRUSTED = 0xFEEDFEED, 2, 2
_SALT = b"Mighty Aphrodite"


def trust_options(java: Java, folder: Path) -> tuple[str, ...]:
    """Options with which a JVM trusts what the system trusts; none where Java sees to it itself.

    Args:
        java: what will run.
        folder: for the file; must last as long as the JVM.
    """
    certificates = tuple(_system_certificates()) if java.origin is JavaOrigin.PACKAGED else ()
    if not certificates:
        return ()
    store = folder / "trusted.jks"
    store.write_bytes(trust_store(certificates))
    return (
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    )


def trust_store(certificates: Sequence[bytes]) -> bytes:
    """A store in the format JKS, which Java cannot be without.

    Args:
        certificates: as DER.
    """
    entries = [
        struct.pack(">I", _TRUSTED) + _text(str(alias)) + bytes(8) + _text("X.509") + _sized(each)
        for alias, each in enumerate(certificates)
    ]
    content = struct.pack(">III", _MAGIC, _FORMAT, len(entries)) + b"".join(entries)
    # As the format has it; it guards against damage, not against people.
    digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + _SALT + content, usedforsecurity=False)
    return content + digest.digest()


def _system_certificates() -> Iterator[bytes]:
    chosen = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    for bundle in filter(None, (chosen, *_BUNDLES)):
        if Path(bundle).is_file():
            text = Path(bundle).read_text(encoding="utf-8", errors="replace")
            yield from map(ssl.PEM_cert_to_DER_cert, _PEM.findall(text))
            return


def _text(text: str) -> bytes:
    encoded = text.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded


def _sized(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content
