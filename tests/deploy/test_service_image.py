"""The start and the drain of the service in its image; nothing here builds it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from onceflow.java.choice import find_java
from onceflow.java.kafka_jars import class_path
from onceflow.pipeline.allow_list.settings import JAVA_OPTIONS
from onceflow.runtime.spark.home import class_archive
from tests.deploy.chart import ROOT, one, render

IMAGE = ROOT / "docker" / "service"
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
SPARK = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "pod",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "pod",
    "SPARK_DRIVER_BIND_ADDRESS": "driver",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_CLASSPATH": class_path(find_java()),
    "SPARK_JAVA_OPT_10": "-Dlast=a b",
    "SPARK_JAVA_OPT_2": "-Dfirst",
    "SPARK_JAVA_OPT_3": "--add-modules=jdk.incubator.vector",
}
NOT_ON_KUBERNETES = {"--bind-address", "--resourcesFile", "--worker-url"}
STANDS_IN = """\
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
signal.pause()
"""


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, IMAGE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ran(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=60,
    )


def test_it_is_onceflow_by_itself() -> None:
    assert script("entrypoint").command_for(["run", "a.yaml"], {}) == ["onceflow", "run", "a.yaml"]


@pytest.mark.parametrize("selector", ["", "a=b"])
def test_a_driver_that_makes_executors_looks_for_leftovers_before_it_starts(selector: str) -> None:
    """Without Kubernetes, which is reported and does not prevent a start."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    entrypoint = IMAGE / "entrypoint.py"
    done = ran(sys.executable, entrypoint, "version", PATH=programs, LEFTOVER_EXECUTORS=selector)
    *told, found = done.stdout.splitlines()

    assert found == version("onceflow")
    assert [json.loads(line)["event"] for line in told] == ["warning"] * bool(selector)
    assert all("executors of an earlier start stay; selector a=b" in line for line in told)


def test_an_executor_is_the_class_that_spark_has_for_it() -> None:
    command = script("entrypoint").command_for(["executor"], SPARK)
    (*ours, jars, settings) = command[command.index("-cp") + 1].split(":")
    begin = command.index("-Dspark.master=k8s://driver")

    assert ":".join(ours) == SPARK["SPARK_CLASSPATH"]
    assert settings == "/opt/spark/conf"
    assert command[begin + 1 : begin + 5] == ["-Dfirst", "-Dlast=a b", "-Xms1g", "-Xmx1g"]
    assert command[begin - 1].startswith("-Dlog4j2.configurationFile=")
    assert Path(command[begin - 1].partition("=")[2]).is_file()
    assert dict(zip(command[-14::2], command[-13::2], strict=True))["--executor-id"] == "3"
    assert list(Path(jars).parent.glob("spark-kubernetes_*.jar")) != []


def test_java_takes_the_archive_of_classes_with_the_class_path_of_an_executor() -> None:
    java = find_java()
    archive = class_archive(java)
    command = script("entrypoint").command_for(["executor"], SPARK)
    loaded = ran(
        java.executable,
        f"-XX:SharedArchiveFile={archive}",
        "-Xlog:class+load",
        "-cp",
        command[command.index("-cp") + 1],
        script("entrypoint").EXECUTOR,
    ).stdout

    assert f"-XX:SharedArchiveFile={archive}" in command
    assert loaded.count("shared objects file (top)") > 1_000


def test_an_executor_is_told_all_that_spark_wants_to_know() -> None:
    """Given a word that it does not know, Spark's own class prints those that it does."""
    entrypoint = script("entrypoint")
    jars = f"{entrypoint._spark_home()}/jars/*"
    java = find_java().executable
    done = ran(java, "-Xmx256m", "-cp", jars, entrypoint.EXECUTOR, "--nonsense", "1")
    known = set(re.findall(r"^ +(--[\w-]+) <", done.stderr, flags=re.MULTILINE))

    assert known - NOT_ON_KUBERNETES == set(entrypoint.FACTS)


def test_a_driver_of_an_operator_submits_in_client_mode() -> None:
    words = ["--class", "org.apache.spark.deploy.PythonRunner", "local:///a.py", "run"]
    command = script("entrypoint").command_for(["driver", *words], SPARK)

    assert Path(command[0]).is_file()
    options = ["--conf", "spark.driver.bindAddress=driver", "--deploy-mode", "client"]
    assert command[1:] == [*options, *words]


def test_the_jvm_of_an_operators_driver_is_bound_and_logs_as_that_of_ours() -> None:
    """It is there before our Python, which asks for these options when it starts one itself.

    The command is looked at, not how it ends: a small Java lacks a module that Spark asks for.
    """
    java = find_java()
    own = {"JAVA_HOME": str(java.home), "SPARK_PRINT_LAUNCH_COMMAND": "1"}
    done = ran(sys.executable, IMAGE / "entrypoint.py", "driver", "--version", **SPARK, **own)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Spark Command: ")]
    options = line.partition(" org.apache.spark.deploy.SparkSubmit ")[0].split()

    assert set(JAVA_OPTIONS.split()) <= set(options)
    assert script("entrypoint")._logging() in options


def test_drain_ends_our_python_and_waits_for_it(tmp_path: Path) -> None:
    file = tmp_path / "onceflow-driver.py"
    file.write_text(STANDS_IN)
    drain = script("drain")
    process = subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE)
    with process, ExitStack() as at_end:
        at_end.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"

        assert (process.pid, signal.SIGTERM) in set(drain.found(Path("/proc")))
        assert drain.drain(process.pid, signal.SIGTERM, 20)
        assert process.wait(5) == 0


def test_drain_leaves_the_jvm_of_a_driver_alone_and_tells_an_executor(tmp_path: Path) -> None:
    commands = {
        "1": b"tini\0--\0entrypoint\0driver",
        "7": b"/usr/bin/java\0-cp\0a\0SparkSubmit\0/opt/onceflow/bin/onceflow-driver.py\0run",
        "9": b"python3\0/opt/onceflow/bin/onceflow-driver.py\0run",
        "11": b"",
        "13": b"java\0-cp\0a\0" + script("entrypoint").EXECUTOR.encode() + b"\0--cores\x001",
        "15": b"sh\0-c\0java " + script("entrypoint").EXECUTOR.encode(),
    }
    for number, command in commands.items():
        (tmp_path / number).mkdir()
        (tmp_path / number / "cmdline").write_bytes(command)

    found = script("drain").found(tmp_path)
    assert sorted(found) == [(9, signal.SIGTERM), (13, signal.SIGPWR)]


@pytest.mark.parametrize(
    "name", ["entrypoint", "onceflow-drain", "onceflow-driver.py", "python-of-workers"]
)
def test_the_image_has_what_it_is_called_by(name: str) -> None:
    assert f"/opt/onceflow/bin/{name}" in DOCKERFILE


def test_chart_and_image_agree() -> None:
    application = one(render("operator"), "SparkApplication")["spec"]
    hook = application["driver"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]

    assert application["mainApplicationFile"] == "local:///opt/onceflow/bin/onceflow-driver.py"
    assert hook["exec"]["command"] == ["onceflow-drain"]
    assert "USER 1000:1000" in DOCKERFILE


@pytest.mark.parametrize("file", ["docker/Dockerfile", "docker/broker/Dockerfile"])
def test_every_stage_begins_with_the_base_that_was_named(file: str) -> None:
    """So that a digest, given once, holds for all of them."""
    bases = re.findall(r"^FROM (\S+)", (ROOT / file).read_text(), re.MULTILINE)
    assert bases
    assert set(bases) == {"${BASE_IMAGE}"}


@pytest.mark.parametrize("base", ["", "debian:bookworm-slim", "debian@sha256:abc"])
def test_a_release_needs_a_base_with_a_digest(base: str) -> None:
    done = ran("make", "release", f"BASE_IMAGE={base}")
    assert done.returncode != 0
    assert "a release names its base by digest" in done.stderr


def test_a_release_builds_on_the_base_that_it_names() -> None:
    base = f"debian@sha256:{'0' * 64}"
    told = ran("make", "--dry-run", "release", f"BASE_IMAGE={base}")
    assert f"--build-arg BASE_IMAGE={base}" in told.stdout
