"""`python -m tests.java [--fix]`: format, compile and test our Java with a JDK and JUnit.

Pipelines need neither: Spark's JVM compiles the files itself, with Janino, which lets mistakes pass
that javac reports (`onceflow.java.loader`). The tests here need no session; those of `tests/spark`
run the same classes in one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import peers
from onceflow.devkit.jars import JarCache, jar_set
from onceflow.java.compiled import SOURCES
from onceflow.runtime.spark.launch import MODULE_OPTIONS
from tests.support.fakes import slow_files

TESTS = Path(__file__).with_name("src")
FOLDERS = (SOURCES, slow_files.SOURCES, TESTS)
PEERS = [str(file) for file in sorted(Path(peers.__file__).parent.glob("*.java"))]
"""Compiled by the benchmark, which has their jars."""
RELEASE = "17"
WARNINGS = "-Xlint:all,-rawtypes,-unchecked,-serial,-classfile,-processing,-path,-cast,-static"
"""Without what comes of code that Janino can compile, and of Spark's own jars."""
PARTS_OF_JAVAC = ("api", "code", "file", "parser", "tree", "util")
TIMEOUT_S = 120


def main() -> int:
    """Return 0 if all files are formatted, compile without a warning, and pass their tests."""
    if shutil.which("javac") is None:
        sys.exit("tests.java: expected a JDK 17 or newer; found no javac")
    files = [str(file) for folder in FOLDERS for file in sorted(folder.rglob("*.java"))]
    with TemporaryDirectory() as classes:
        class_path = os.pathsep.join(
            [classes, *map(str, [*_spark(), *_jars("kafka", "s3", "junit")])]
        )
        return (
            _format([*files, *PEERS], is_fixing="--fix" in sys.argv)
            or _compile(files, classes, class_path)
            or _test(classes, class_path)
        )


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


def _compile(files: list[str], classes: str, class_path: str) -> int:
    command = ["javac", "--release", RELEASE, WARNINGS, "-Werror", "-d", classes]
    return subprocess.call([*command, "-classpath", class_path, *files], timeout=TIMEOUT_S)


def _test(classes: str, class_path: str) -> int:
    command = ["java", *MODULE_OPTIONS, "-classpath", class_path]
    command += ["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner"]
    command += ["--scan-classpath", classes, "--details", "summary", "--fail-if-no-tests"]
    return subprocess.call(command, timeout=TIMEOUT_S)


def _spark() -> list[Path]:
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    return sorted((Path(spark.origin).parent / "jars").glob("*.jar"))


def _jars(*names: str) -> list[Path]:
    return [jar for name in names for jar in sorted(JarCache.of_user().ensure(jar_set(name)))]


if __name__ == "__main__":
    sys.exit(main())
