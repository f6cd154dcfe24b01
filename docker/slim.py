#!/usr/bin/env python3
"""Removes the parts of an installed service that its image does not use. Used by docker/Dockerfile.

Spark is published for every system and every purpose. Each entry below was removed after a check of
its uses; `tests/system` runs pipelines in the rest.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import zipfile
from pathlib import Path

JARS = """
hive-* spark-hive* datanucleus-* derby* bonecp-* HikariCP-* jdo-api-* javax.jdo-* libthrift-*
libfb303-* ST4-* antlr-runtime-* stax-api-* jta-* transaction-api-* opencsv-* jpam-*
spark-mllib_* spark-graphx_* breeze* spire* cats-kernel* algebra_* lapack-* blas-* arpack*
JTransforms-* JLargeArrays-* pmml-* netlib-*
spark-connect_* spark-repl_* scala-compiler-* jline-* spark-yarn_*
"""
"""File names in the folder of jars: tables of Hive and its server, because queries here read only
streams; machine learning and graphs with their mathematics; servers and shells of other scripts."""
FOLDERS = """
pyspark/jars/connect-repl pyspark/examples pyspark/data pyspark/sbin pyspark/licenses
pyspark/pandas pyspark/ml pyspark/mllib pyspark/python
pandas/tests pyarrow/tests pyarrow/include pyarrow/src numpy/tests numpy/*/tests
numpy/f2py numpy/_core/include numpy/_core/lib pygments/lexers
pyarrow/libarrow_flight.so.* pyarrow/_flight.*
pip pip-* setuptools setuptools-* _distutils_hack distutils-precedence.pth pkg_resources
"""
"""Below site-packages: examples, tests, headers, package installers, the Python side of the
removed jars, and an unused part of Arrow."""
NATIVES = ("linux-amd64", "linux-x86_64", "linux64", "Linux/x86_64", "linux/amd64", "linux/x86_64")
"""In names of native libraries for this machine."""
NATIVE_SUFFIXES = (".so", ".dll", ".dylib", ".jnilib", ".a")
NATIVE_JARS = "rocksdbjni-* zstd-jni-* snappy-java-* lz4-java-* jna-* netty-tcnative-* leveldbjni-*"


def matching(folder: Path, patterns: str) -> list[Path]:
    """Files that match; patterns are separated by blanks."""
    return [path for pattern in patterns.split() for path in folder.glob(pattern)]


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        # It may be gone with its folder.
        path.unlink(missing_ok=True)


def is_foreign(name: str) -> bool:
    """Whether it is a native library for another kind of machine."""
    return name.endswith(NATIVE_SUFFIXES) and not (
        any(native in name for native in NATIVES) and "musl" not in name
    )


def without_foreign_natives(jar: Path) -> None:
    """Rewrite a jar without native libraries for other machines; nothing else changes."""
    slim = jar.with_suffix(".slim")
    with zipfile.ZipFile(jar) as old, zipfile.ZipFile(slim, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            if not is_foreign(entry.filename):
                new.writestr(entry, old.read(entry))
    slim.replace(jar)


def with_links(folder: Path) -> None:
    """Make links of files that a wheel, which knows no links, has several times."""
    first: dict[str, Path] = {}
    for file in sorted(path for path in folder.glob("*.so*") if not path.is_symlink()):
        original = first.setdefault(hashlib.sha256(file.read_bytes()).hexdigest(), file)
        if original is not file:
            file.unlink()
            file.symlink_to(original.name)


def main(root: Path) -> None:
    """Slim the environment at `root`."""
    (packages,) = root.glob("lib/python3.*/site-packages")
    for path in [*matching(packages / "pyspark" / "jars", JARS), *matching(packages, FOLDERS)]:
        remove(path)
    with_links(packages / "pyarrow")
    for jar in matching(packages / "pyspark" / "jars", NATIVE_JARS):
        without_foreign_natives(jar)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
