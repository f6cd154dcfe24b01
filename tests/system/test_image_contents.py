"""The contents of the service's image, and what must not be in it."""

from __future__ import annotations

import hashlib
import json
import runpy
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pyspark
import pytest
from docker.errors import ContainerError
from testcontainers.core.docker_client import DockerClient

import onceflow
from onceflow.java.compiled import compiled_jar
from tests.deploy.chart import ROOT
from tests.support.drivers.service_container import IMAGE, USER

# Not by import: `docker` is the client library.
NATIVE_JARS = str(runpy.run_path(str(ROOT / "docker" / "slim.py"))["NATIVE_JARS"])
MAX_BYTES = 1_110_000_000
"""Of these, 134 MB are the library of Delta Lake, and 56 those of the other targets."""
LOCKS = Path(onceflow.__file__).parent / "devkit" / "jarsets"
OWN_JAR = "onceflow-conditional-files.jar"
"""Archives that are made of our own sources."""


@pytest.fixture(scope="module")
def image() -> object:
    return DockerClient().client.images.get(IMAGE)


def said(*command: str, may_fail: bool = False) -> str:
    """Return what a command prints in it, as root and without a network."""
    client = DockerClient().client
    words = [*command[1:]]
    try:
        output: bytes = client.containers.run(
            IMAGE, words, entrypoint=command[0], remove=True, network_mode="none", user="0"
        )
    except ContainerError:
        if not may_fail:
            raise
        return ""
    finally:
        client.close()
    return output.decode().strip()


def test_it_is_small(image: object) -> None:
    assert image.attrs["Size"] < MAX_BYTES  # type: ignore[attr-defined]


def test_it_says_what_it_is_and_runs_as_nobody_in_particular(image: object) -> None:
    config = image.attrs["Config"]  # type: ignore[attr-defined]
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"][0] == "tini"
    assert config["Healthcheck"]["Test"] == ["CMD", "onceflow-health"]
    labels = config["Labels"]
    assert labels["org.opencontainers.image.version"] == said("onceflow", "version")
    assert len(labels["org.opencontainers.image.revision"]) == 40


def test_nobody_becomes_somebody_else_in_it() -> None:
    assert said("find", "/", "-xdev", "-type", "f", "-perm", "/6000") == ""


def test_only_root_could_change_it() -> None:
    writable = said(
        "find", "/opt", "/usr", "/etc", "-xdev", "-not", "-type", "l", "(", "-perm", "/022", ")"
    )
    assert writable == ""
    assert said("find", "/opt", "/usr", "-xdev", "-not", "-user", "root") == ""


@pytest.mark.parametrize("module", ["pip", "setuptools", "ensurepip"])
def test_nothing_can_be_installed_in_it(module: str) -> None:
    command = f"import importlib.util; print(importlib.util.find_spec({module!r}))"
    assert said("/opt/onceflow/bin/python3", "-c", command) == "None"


@pytest.mark.parametrize(
    "command", [("onceflow", "--help"), ("onceflow", "doctor", "--help"), ("java", "-version")]
)
def test_its_programs_start(command: tuple[str, ...]) -> None:
    assert "Error" not in said(*command)


BILL = "/usr/share/onceflow/bill.json"
LIST_PACKAGES = """
import json, hashlib, pathlib
from importlib.metadata import distributions
jars = pathlib.Path("/opt/onceflow").rglob("*.jar")
print(json.dumps({
    "python": sorted({d.name.lower().replace("_", "-") for d in distributions()}),
    "jars": {j.name: hashlib.sha256(j.read_bytes()).hexdigest() for j in jars},
}))
"""


@pytest.fixture(scope="module")
def installed() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said("/opt/onceflow/bin/python3", "-c", LIST_PACKAGES))
    return found


@pytest.fixture(scope="module")
def bill() -> list[dict[str, Any]]:
    components: list[dict[str, Any]] = json.loads(said("cat", BILL))["components"]
    return components


def test_the_bill_of_materials_names_what_is_installed(
    installed: dict[str, Any], bill: list[dict[str, Any]]
) -> None:
    named = {component["name"].lower().replace("_", "-") for component in bill}
    assert {*installed["python"]} - {"onceflow"} <= named
    jars = {
        component["bom-ref"].removeprefix("jar:"): component["hashes"][0]["content"]
        for component in bill
        if component["bom-ref"].startswith("jar:")
    }
    assert jars == installed["jars"]
    packages = said("dpkg-query", "--show", "--showformat", "${Package}\\n").splitlines()
    assert {f"deb:{name}" for name in packages} <= {component["bom-ref"] for component in bill}


def test_its_jars_are_those_of_the_locked_packages(installed: dict[str, Any]) -> None:
    """Some have lost native libraries of other machines on the way."""
    locked = {
        jar.name: hashlib.sha256(jar.read_bytes()).hexdigest()
        for jar in Path(pyspark.__file__).parent.joinpath("jars").rglob("*.jar")
    }
    lines = [line for each in ("kafka", "s3") for line in _lock(each).splitlines()]
    fetched = {name: sha for sha, name in map(str.split, lines)}
    assert fetched.items() <= installed["jars"].items()
    of_others = installed["jars"].keys() - locked.keys() - fetched.keys()
    # Our sources are compiled: a start of the image compiles nothing.
    ours = {OWN_JAR, compiled_jar().name}
    assert {name for name in of_others if not name.startswith("py4j")} == ours
    changed = {
        name
        for name in locked.keys() & installed["jars"]
        if locked[name] != installed["jars"][name]
    }
    assert {name for name in changed if not fnmatches(name, NATIVE_JARS)} == set()


def _lock(name: str) -> str:
    return (LOCKS / f"{name}.sha256").read_text()


def fnmatches(name: str, patterns: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns.split())


def test_no_secret_is_in_it() -> None:
    """Neither what lies around where it is built, nor any key."""
    history = DockerClient().client.images.get(IMAGE).history()
    assert not [step for step in history if "password" in step["CreatedBy"].lower()]
    found = said(
        "grep", "-rlE", "--include=*.pem", "--include=*.key", "--include=*.yaml", "--include=*.env",
        "PRIVATE KEY-----|password:", "/opt", "/etc", "/var/lib/onceflow", "/usr/share/onceflow",
        may_fail=True,
    )  # fmt: skip
    assert found == ""
