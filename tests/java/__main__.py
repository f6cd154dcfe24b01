"""`python -m tests.java [--fix]`: compile and format our Java, as the JDK of Spark and Google do.

Pipelines need neither: Spark's JVM compiles the files itself, with Janino, which lets mistakes pass
that javac reports (`onceflow.java.loader`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from onceflow.devkit.jars import JarCache, jar_set
from onceflow.java.loader import SOURCES
from tests.support import slow_files

FOLDERS = (SOURCES, slow_files.SOURCES)
RELEASE = "17"
WARNINGS = "-Xlint:all,-rawtypes,-unchecked,-serial,-classfile,-processing,-path,-cast,-static"
"""Without what comes of code that Janino can compile, and of Spark's own jars."""
PARTS_OF_JAVAC = ("api", "code", "file", "parser", "tree", "util")
TIMEOUT_S = 120


def main() -> int:
    """Return 0 if all files compile without a warning and are formatted."""
    if shutil.which("javac") is None:
        sys.exit("tests.java: expected a JDK 17 or newer; found no javac")
    files = [str(file) for folder in FOLDERS for file in sorted(folder.rglob("*.java"))]
    return _format(files, is_fixing="--fix" in sys.argv) or _compile(files)


def _compile(files: list[str]) -> int:
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    known = [*sorted((Path(spark.origin).parent / "jars").glob("*.jar")), *_jars("s3")]
    with TemporaryDirectory() as classes:
        command = ["javac", "--release", RELEASE, WARNINGS, "-Werror", "-d", classes]
        command += ["-classpath", os.pathsep.join(map(str, known)), *files]
        return subprocess.call(command, timeout=TIMEOUT_S)


def _format(files: list[str], *, is_fixing: bool) -> int:
    opened = [
        f"--add-exports=jdk.compiler/com.sun.tools.javac.{part}=ALL-UNNAMED"
        for part in PARTS_OF_JAVAC
    ]
    command = ["java", *opened, "-classpath", os.pathsep.join(map(str, _jars("format")))]
    command.append("com.google.googlejavaformat.java.Main")
    if is_fixing:
        return subprocess.call([*command, "--replace", *files], timeout=TIMEOUT_S)
    code = subprocess.call(
        [*command, "--dry-run", "--set-exit-if-changed", *files], timeout=TIMEOUT_S
    )
    if code:
        print("These Java files are not formatted; run `make fmt`.", file=sys.stderr)  # noqa: T201
    return code


def _jars(name: str) -> list[Path]:
    return sorted(JarCache.of_user().ensure(jar_set(name)))


if __name__ == "__main__":
    sys.exit(main())
