"""Our Java is loaded from the jar that fits its sources, and compiled where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onceflow.errors import ConfigError
from onceflow.java import compiled
from onceflow.java.choice import use_java
from onceflow.java.loader import class_loader
from onceflow.pipeline.plan.plan import jvm_of

SOURCE = "package onceflow; public class Answer {{ public int get() {{ return {}; }} }}"


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with one class, in an environment where nothing is compiled."""
    monkeypatch.setattr(compiled, "environment_folder", lambda: tmp_path / "environment")
    compiled.compiled_jar.cache_clear()
    (tmp_path / "environment").mkdir()
    folder = tmp_path / "src"
    (folder / "onceflow").mkdir(parents=True)
    (folder / "onceflow" / "Answer.java").write_text(SOURCE.format(42))
    yield folder
    compiled.compiled_jar.cache_clear()


def answer(spark: SparkSession, sources: Path) -> tuple[str, int]:
    """Kind of the loader, and what its class says."""
    jvm = jvm_of(spark)
    loader = class_loader(jvm, sources)
    found = jvm.java.lang.Class.forName("onceflow.Answer", True, loader)
    method = found.getMethod("get", None)
    return loader.getClass().getSimpleName(), method.invoke(found.newInstance(), None)


def compile_into_jar(sources: Path) -> None:
    files = [*sources.rglob("*.java")]
    jar = compiled.compiled_jar(sources)
    compiled.compile_to_jar(files, [compiled.jars_of_spark()], use_java(), jar)


def test_classes_come_from_the_jar_that_fits(spark: SparkSession, sources: Path) -> None:
    compile_into_jar(sources)
    assert answer(spark, sources) == ("URLClassLoader", 42)


def test_without_a_jar_that_fits_the_sources_are_compiled(
    spark: SparkSession, sources: Path
) -> None:
    compile_into_jar(sources)
    (sources / "onceflow" / "Answer.java").write_text(SOURCE.format(43))
    compiled.compiled_jar.cache_clear()
    assert answer(spark, sources) == ("JavaSourceClassLoader", 43)


def test_a_source_that_cannot_be_compiled_is_named(sources: Path) -> None:
    (sources / "onceflow" / "Answer.java").write_text("package onceflow; public class {")
    with pytest.raises(ConfigError, match=r"cannot be compiled: Answer.java; found"):
        compile_into_jar(sources)
    assert not compiled.compiled_jar(sources).exists()


def test_kafkas_client_and_our_classes_are_on_the_class_path_of_spark(spark: SparkSession) -> None:
    jvm = jvm_of(spark)
    assert jvm.org.apache.kafka.common.utils.AppInfoParser.getVersion() == "4.3.1"
    decoder = jvm.java.lang.Class.forName("onceflow.decoders.Decoder")
    system = jvm.java.lang.ClassLoader.getSystemClassLoader()
    assert decoder.getClassLoader().equals(system)


def test_the_environment_of_the_tests_has_the_jar_of_our_sources() -> None:
    """Otherwise the tests would compile, and not see what users run."""
    command = "python -m onceflow.runtime.spark.record_classes"
    assert compiled.compiled_jar().is_file(), f"after a change of the sources, run `{command}`"
