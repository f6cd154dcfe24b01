#!/usr/bin/env python3
"""Completes the image's bill of materials. Used by docker/Dockerfile, in the finished image.

`cyclonedx-py` has written down the Python packages that are installed. This adds the jars, with
their hashes, and Debian's packages.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.+-]*)\.jar")


def jars(folder: Path) -> Iterator[dict[str, Any]]:
    """Every jar, by the name and version of its file."""
    for file in sorted(folder.rglob("*.jar")):
        found = JAR.fullmatch(file.name)
        name, version = found.group("name", "version") if found else (file.stem, "")
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        yield {
            "type": "library",
            "bom-ref": f"jar:{file.name}",
            "name": name,
            "version": version,
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }


def debian_packages() -> Iterator[dict[str, Any]]:
    """Packages that dpkg knows."""
    line = "${Package} ${Version} ${Architecture}\n"
    told = subprocess.run(
        ["dpkg-query", "--show", "--showformat", line], check=True, capture_output=True, text=True
    ).stdout
    for name, version, architecture in sorted(map(str.split, told.splitlines())):
        yield {
            "type": "library",
            "bom-ref": f"deb:{name}",
            "name": name,
            "version": version,
            "purl": f"pkg:deb/debian/{name}@{version}?arch={architecture}",
        }


def main(bill: Path, folder: Path) -> None:
    """Add the components to `bill`, with the jars below `folder`."""
    content = json.loads(bill.read_text())
    content["components"] += [*jars(folder), *debian_packages()]
    bill.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
