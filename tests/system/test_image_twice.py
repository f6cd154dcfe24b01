"""Built twice, from nothing, the image has the same content. `make release` plays it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from testcontainers.core.docker_client import DockerClient

from tests.support.drivers.service_container import IMAGE

ROOT = Path(__file__).parents[2]
FIRST = "onceflow:first"
OPTIONS = "BUILT_WITH"
"""Variable with the options of the build that is there."""
BUILD_TIMEOUT_S = 1200
LIST = """
import hashlib, json, os, stat
found = {}
for folder, folders, files in os.walk("/"):
    folders[:] = [n for n in folders if not os.path.ismount(os.path.join(folder, n))]
    for name in files:
        path = os.path.join(folder, name)
        told = os.lstat(path)
        if stat.S_ISLNK(told.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(told.st_mode) and not os.path.ismount(path):
            with open(path, "rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        else:
            continue
        found[path] = [stat.filemode(told.st_mode), told.st_uid, content]
print(json.dumps(found))
"""
DIFFERENT = (".jsa", "/opt/java/lib/modules")
"""Archives of classes hold addresses in memory: the JVM writes them otherwise each time. And jlink
17 writes sets of modules' names in an order of chance: of what is in them, names are compared."""
OF_THE_ENGINE = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/.dockerenv")


def content_of(image: str) -> dict[str, list[str]]:
    """Every file: mode, owner, digest."""
    client = DockerClient().client
    told = client.containers.run(
        image,
        ["-c", LIST],
        entrypoint="/opt/onceflow/bin/python3",
        remove=True,
        network_mode="none",
        user="0",
    )
    client.close()
    found: dict[str, list[str]] = json.loads(told)
    return {
        path: facts
        for path, facts in found.items()
        if not path.endswith(DIFFERENT) and path not in OF_THE_ENGINE
    }


def modules_of(image: str) -> list[bytes]:
    """Java's modules, each with its version."""
    client = DockerClient().client
    told: bytes = client.containers.run(
        image, ["--list-modules"], entrypoint="java", remove=True, network_mode="none"
    )
    client.close()
    return told.splitlines()


@pytest.mark.long
@pytest.mark.timeout(2 * BUILD_TIMEOUT_S)
def test_two_builds_have_the_same_content() -> None:
    subprocess.run(["docker", "tag", IMAGE, FIRST], check=True)
    subprocess.run(
        ["make", "image", f"IMAGE_OPTIONS=--no-cache {os.environ.get(OPTIONS, '')}"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=BUILD_TIMEOUT_S,
    )
    first, second = content_of(FIRST), content_of(IMAGE)
    changed = {path for path in first.keys() | second if first.get(path) != second.get(path)}
    assert changed == set()
    assert len(first) > 5_000
    assert modules_of(FIRST) == modules_of(IMAGE)
