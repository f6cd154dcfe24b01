"""Certificates of a test's own authority, as PEM files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

HERE = "127.0.0.1"


@dataclass(frozen=True)
class KeyPair:
    """A certificate with its chain, and its key in PKCS 8, which is what Java reads."""

    certificate: Path
    key: Path

    def as_one_file(self, path: Path) -> Path:
        """Both in one, as a broker's key store."""
        path.write_bytes(self.key.read_bytes() + self.certificate.read_bytes())
        return path


@dataclass(frozen=True)
class Authority:
    """Issues certificates into a folder."""

    folder: Path
    issuer: trustme.CA

    @classmethod
    def in_folder(cls, folder: Path) -> Authority:
        made = cls(folder, trustme.CA())
        folder.mkdir(parents=True, exist_ok=True)
        made.issuer.cert_pem.write_to_path(str(made.certificate))
        return made

    @property
    def certificate(self) -> Path:
        return self.folder / "authority.pem"

    def issue(self, name: str, *, file: str = "") -> KeyPair:
        """For a server on this machine, or a client whose common name it is."""
        leaf = self.issuer.issue_cert(HERE, "localhost", common_name=name)
        pair = KeyPair(self.folder / f"{file or name}.pem", self.folder / f"{file or name}-key.pem")
        key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        chain = b"".join(part.bytes() for part in leaf.cert_chain_pems)
        pair.certificate.write_bytes(chain)
        return pair
