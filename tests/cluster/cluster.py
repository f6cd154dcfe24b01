"""A real Kubernetes API server with its controllers, and no node: objects are judged and made, and
pods wait to be scheduled.

Built from source by Go, as nobody publishes it in a package index: ten minutes on two cores, once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import platformdirs
import trustme
import yaml

from onceflow.devkit.broker_start import free_ports
from tests.support.eventually import eventually

SOURCES = Path(__file__).parent
HERE = "127.0.0.1"
BUILD_TIMEOUT_S = 3600
START_TIMEOUT_S = 120
VERSION_NAME = "k8s.io/component-base/version.gitVersion"
"""Variable that holds what the API server says it is."""
ADMINISTRATORS = "system:masters"


@dataclass(frozen=True)
class Cluster:
    """The API server, and an administrator's way in."""

    address: str
    kubeconfig: Path
    client: httpx.Client

    def get(self, path: str) -> Any:
        return self.client.get(path).raise_for_status().json()

    def post(self, path: str, content: Mapping[str, Any]) -> Any:
        answer = self.client.post(path, json=content)
        assert answer.is_success, answer.text
        return answer.json()

    def may(self, account: str, namespace: str, verb: str, resource: str, place: str = "") -> bool:
        """Whether a service account may do something, in its namespace or another place."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{namespace}:{account}",
                "resourceAttributes": {
                    "namespace": place or namespace,
                    "verb": verb,
                    "resource": resource,
                },
            },
        }
        answer = self.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])


def provide_program() -> Path:
    """etcd, API server and controllers in one program; built if these sources never were."""
    content = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        content.update((SOURCES / name).read_bytes())
    folder = Path(os.environ.get("ONCEFLOW_CACHE", platformdirs.user_cache_dir("onceflow")))
    program = folder / f"cluster-{content.hexdigest()[:12]}"
    if not program.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(".unfinished")
        flags = f"-s -w -X {VERSION_NAME}={_kubernetes_version()}"
        command = ["go", "build", f"-ldflags={flags}", "-o", str(unfinished), "."]
        subprocess.run(command, cwd=SOURCES, check=True, timeout=BUILD_TIMEOUT_S)
        unfinished.replace(program)
    return program


def _kubernetes_version() -> str:
    (version,) = re.findall(r"k8s\.io/kubernetes (v\S+)", (SOURCES / "go.mod").read_text())
    return str(version)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Run it inside the block.

    Args:
        folder: for data, keys and logs; is there.
    """
    program = provide_program()
    etcd, peers, port = free_ports(3)
    authority = trustme.CA()
    files = _write_keys(authority, folder)
    parts: Mapping[str, Sequence[str]] = {
        "etcd": [
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://{HERE}:{etcd}",
            f"--advertise-client-urls=http://{HERE}:{etcd}",
            f"--listen-peer-urls=http://{HERE}:{peers}",
        ],
        "apiserver": [
            f"--etcd-servers=http://{HERE}:{etcd}",
            f"--bind-address={HERE}",
            f"--secure-port={port}",
            f"--client-ca-file={files['authority']}",
            f"--tls-cert-file={files['server']}",
            f"--tls-private-key-file={files['server']}",
            "--service-account-issuer=https://kubernetes.test",
            f"--service-account-key-file={files['accounts']}",
            f"--service-account-signing-key-file={files['accounts']}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
        ],
        "controllers": [
            f"--kubeconfig={files['kubeconfig']}",
            f"--service-account-private-key-file={files['accounts']}",
            "--leader-elect=false",
            "--secure-port=0",
        ],
    }
    address = f"https://{HERE}:{port}"
    _write_kubeconfig(files, address)
    context = ssl.create_default_context(cafile=files["authority"])
    context.load_cert_chain(files["administrator"])
    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=address, verify=context, timeout=30))
        for part, flags in parts.items():
            stack.enter_context(_running(program, part, flags, folder))
            if part == "apiserver":
                eventually(lambda: _is_ready(client), timeout_s=START_TIMEOUT_S)
        yield Cluster(address, Path(files["kubeconfig"]), client)


@contextmanager
def _running(program: Path, part: str, flags: Sequence[str], folder: Path) -> Iterator[None]:
    with (folder / f"{part}.log").open("wb") as log:
        process = subprocess.Popen([program, part, *flags], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").is_success
    except httpx.HTTPError:
        return False


def _write_keys(authority: trustme.CA, folder: Path) -> dict[str, str]:
    files = {
        name: str(folder / f"{name}.pem")
        for name in ("authority", "server", "administrator", "accounts")
    }
    authority.cert_pem.write_to_path(files["authority"])
    server = authority.issue_cert(HERE, "localhost")
    server.private_key_and_cert_chain_pem.write_to_path(files["server"])
    person = authority.issue_cert(
        "administrator@test", common_name="administrator", organization_name=ADMINISTRATORS
    )
    person.private_key_and_cert_chain_pem.write_to_path(files["administrator"])
    server.private_key_pem.write_to_path(files["accounts"])
    return {**files, "kubeconfig": str(folder / "kubeconfig")}


def _write_kubeconfig(files: Mapping[str, str], address: str) -> None:
    name = "test"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {"server": address, "certificate-authority": files["authority"]},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate": files["administrator"],
                    "client-key": files["administrator"],
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    Path(files["kubeconfig"]).write_text(yaml.safe_dump(config))


def require_go() -> None:
    """Fails where the program is not there and cannot be built."""
    assert shutil.which("go"), "install Go 1.26 or newer"
