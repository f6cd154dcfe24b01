"""The pod that Spark itself makes of the chart's settings and template, without a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from pyspark.java_gateway import launch_gateway

from tests.deploy import policies
from tests.deploy.chart import EXECUTOR_FILE, KUBERNETES, Manifest, Values, one, render

END_TIMEOUT_S = 20
SECRET = "marker-of-the-secret-of-spark"


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    """A JVM with Spark's classes, in which nothing of Spark runs."""
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(END_TIMEOUT_S)


def executor_of(jvm: Any, manifests: Sequence[Manifest], folder: Path) -> Any:
    """Executor 1, with what Spark adds to the template."""
    data = one(manifests, "ConfigMap", "-settings")["data"]
    template = folder / EXECUTOR_FILE
    template.write_text(data[EXECUTOR_FILE])
    settings = yaml.safe_load(data[policies.SETTINGS])["spark"]
    there = {"spark.kubernetes.executor.podTemplateFile": str(template)}
    secret = folder / "secret"
    secret.write_text(SECRET)
    conf_of_secret = "spark.authenticate.secret.file"
    assert settings["conf"][conf_of_secret] == "/etc/onceflow/spark/secret"
    there[conf_of_secret] = str(secret)
    given = {**settings["conf"], **there, "spark.master": settings["master"], "spark.app.name": "a"}
    conf = jvm.org.apache.spark.SparkConf(False)
    for name, value in given.items():
        conf.set(name, str(value))

    nothing = jvm.scala.Option.empty()
    spark = jvm.org.apache.spark
    secret_file = getattr(spark.SecurityManager, "$lessinit$greater$default$3")()
    security = spark.SecurityManager(conf, nothing, secret_file)
    security.initializeAuth()
    profiles = getattr(getattr(spark.resource, "ResourceProfile$"), "MODULE$")
    profiles.clearDefaultProfile()
    made = spark.scheduler.cluster.k8s.KubernetesExecutorBuilder().buildFromFeatures(
        spark.deploy.k8s.KubernetesConf.createExecutorConf(conf, "1", "app", nothing, 0),
        security,
        jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build(),
        profiles.getOrCreateDefaultProfile(conf),
    )
    as_json = jvm.io.fabric8.kubernetes.client.utils.Serialization.asJson
    pod = json.loads(as_json(made.pod().pod()))
    pod["spec"]["containers"] = [json.loads(as_json(made.pod().container()))]
    return pod


@pytest.mark.parametrize("example", ["k8s", "k8s-shared-volume"])
def test_spark_keeps_what_the_template_says(example: str, jvm: Any, tmp_path: Path) -> None:
    pod = executor_of(jvm, render(example), tmp_path)
    everything = [pod, *(m for m in render(example) if m["kind"] == "NetworkPolicy")]
    kept = [policies.is_restricted, policies.no_foreign_settings, policies.traffic_is_bounded]

    assert [finding for policy in kept for finding in policy(everything)] == []
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["containers"][0]["args"] == ["executor"]
    kubernetes_validate.validate(pod, KUBERNETES[-1], strict=True)


def test_it_gets_the_memory_that_the_guard_compared(jvm: Any, tmp_path: Path) -> None:
    values: Values = {
        "executors.heap": "2g",
        "executors.memoryOverhead": "1500m",
        "executors.cores": 2,
    }
    (container,) = executor_of(jvm, render("k8s", values), tmp_path)["spec"]["containers"]

    assert container["resources"]["limits"] == {"memory": f"{2048 + 1500}Mi"}
    assert container["resources"]["requests"]["cpu"] == "2"


def test_it_finds_the_driver_and_room_for_its_files(jvm: Any, tmp_path: Path) -> None:
    pod = executor_of(jvm, render("k8s"), tmp_path)
    (container,) = pod["spec"]["containers"]
    told = {variable["name"]: variable.get("value") for variable in container["env"]}
    rooms = {
        v["name"]: v["emptyDir"]["sizeLimit"] for v in pod["spec"]["volumes"] if "emptyDir" in v
    }

    assert "_SPARK_AUTH_SECRET" not in told
    assert SECRET not in json.dumps(pod)
    (volume,) = [v for v in pod["spec"]["volumes"] if v["name"] == "spark"]
    assert volume["secret"]["secretName"] == "page-views-spark"
    assert "/etc/onceflow/spark" in {m["mountPath"] for m in container["volumeMounts"]}
    assert told["SPARK_DRIVER_URL"].endswith("@page-views-0.page-views.streams.svc:7078")
    assert [port["containerPort"] for port in container["ports"]] == [7079]
    assert rooms == {"scratch": "1Gi", "spark-local-dir-1": "8Gi"}
    assert told["SPARK_LOCAL_DIRS"] in {m["mountPath"] for m in container["volumeMounts"]}
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
