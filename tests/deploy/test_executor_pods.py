"""The pod that Spark itself makes of the chart's settings and template, without a cluster."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import kubernetes_validate
import pytest
import yaml
from pyspark import SparkConf
from pyspark.java_gateway import ensure_callback_server_started, launch_gateway

from onceflow.java.choice import use_java
from onceflow.runtime.spark.home import use_spark_home
from tests.deploy import policies
from tests.deploy.chart import EXECUTOR_FILE, KUBERNETES, Manifest, Values, one, render
from tests.deploy.test_service_image import script

END_TIMEOUT_S = 20
SECRET = "marker-of-the-secret-of-spark"
PREFIX = "spark.kubernetes.executor.podNamePrefix"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the standard error of the JVM."""
    return tmp_path_factory.mktemp("jvm") / "log"


@pytest.fixture(scope="module")
def jvm(log: Path) -> Iterator[Any]:
    """A JVM with Spark's classes, in which nothing of Spark runs. It logs as executors do."""
    use_java()
    use_spark_home(is_local=True)
    option = shlex.quote(script("entrypoint")._logging())
    conf = SparkConf(loadDefaults=False).set("spark.driver.extraJavaOptions", option)
    with log.open("wb") as stderr:
        gateway = launch_gateway(conf, {"stderr": stderr})  # type: ignore[no-untyped-call]
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(END_TIMEOUT_S)


def conf_of(jvm: Any, manifests: Sequence[Manifest], folder: Path) -> Any:
    """The settings that Spark gets in the driver's pod, with files of this machine."""
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
    given = {**settings["conf"], **there, "spark.master": settings["master"]}
    conf = jvm.org.apache.spark.SparkConf(False)
    for name, value in given.items():
        conf.set(name, str(value))
    return conf


def executor_of(jvm: Any, conf: Any, number: int = 1) -> Any:
    """An executor, with what Spark adds to the template."""
    nothing = jvm.scala.Option.empty()
    spark = jvm.org.apache.spark
    secret_file = getattr(spark.SecurityManager, "$lessinit$greater$default$3")()
    security = spark.SecurityManager(conf, nothing, secret_file)
    security.initializeAuth()
    profiles = getattr(getattr(spark.resource, "ResourceProfile$"), "MODULE$")
    profiles.clearDefaultProfile()
    made = spark.scheduler.cluster.k8s.KubernetesExecutorBuilder().buildFromFeatures(
        spark.deploy.k8s.KubernetesConf.createExecutorConf(conf, str(number), "app", nothing, 0),
        security,
        jvm.io.fabric8.kubernetes.client.KubernetesClientBuilder().build(),
        profiles.getOrCreateDefaultProfile(conf),
    )
    as_json = jvm.io.fabric8.kubernetes.client.utils.Serialization.asJson
    pod = json.loads(as_json(made.pod().pod()))
    pod["spec"]["containers"] = [json.loads(as_json(made.pod().container()))]
    return pod


def variables_of(pod: Any) -> dict[str, Any]:
    (container,) = pod["spec"]["containers"]
    return {variable["name"]: variable.get("value") for variable in container["env"]}


@pytest.mark.parametrize("example", ["k8s", "k8s-shared-volume"])
def test_spark_keeps_what_the_template_says(example: str, jvm: Any, tmp_path: Path) -> None:
    pod = executor_of(jvm, conf_of(jvm, render(example), tmp_path))
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
    pod = executor_of(jvm, conf_of(jvm, render("k8s", values), tmp_path))
    (container,) = pod["spec"]["containers"]

    assert container["resources"]["limits"] == {"memory": f"{2048 + 1500}Mi"}
    assert container["resources"]["requests"]["cpu"] == "500m"


def test_without_a_request_it_asks_for_whole_cores(jvm: Any, tmp_path: Path) -> None:
    values: Values = {"executors.requestCores": "", "executors.cores": 2}
    pod = executor_of(jvm, conf_of(jvm, render("k8s", values), tmp_path))
    (container,) = pod["spec"]["containers"]

    assert container["resources"]["requests"]["cpu"] == "2"


def test_a_driver_that_starts_again_finds_no_name_taken(jvm: Any, tmp_path: Path) -> None:
    """Spark's cluster manager makes a prefix when a session starts, unless it has one."""
    longest = "a" * 40
    manifests = render("k8s", release=longest)
    make_prefix = jvm.org.apache.spark.deploy.k8s.KubernetesConf.getResourceNamePrefix
    found = []
    for _ in range(3):
        conf = conf_of(jvm, manifests, tmp_path)
        assert not conf.contains(PREFIX)
        conf.set(PREFIX, make_prefix(conf.get("spark.app.name")))
        found += [executor_of(jvm, conf, number) for number in (1, 12345)]

    names = [pod["metadata"]["name"] for pod in found]
    assert len(set(names)) == len(names)
    assert all(name.startswith(f"{longest}-") for name in names)
    for pod in found:
        assert len(pod["spec"]["hostname"]) <= 63
        kubernetes_validate.validate(pod, KUBERNETES[-1], strict=True)


def test_without_its_file_the_secret_would_stand_in_the_pod(jvm: Any, tmp_path: Path) -> None:
    """So that the test below can fail."""
    conf = conf_of(jvm, render("k8s"), tmp_path)
    conf.remove("spark.authenticate.secret.file")

    assert len(variables_of(executor_of(jvm, conf))["_SPARK_AUTH_SECRET"]) >= 32


def test_what_the_driver_deletes_at_its_start_is_what_spark_has_made(
    jvm: Any, tmp_path: Path
) -> None:
    manifests = render("k8s")
    labels = executor_of(jvm, conf_of(jvm, manifests, tmp_path))["metadata"]["labels"]
    pod = one(manifests, "StatefulSet")["spec"]["template"]
    (selector,) = [
        variable["value"]
        for variable in pod["spec"]["containers"][0]["env"]
        if variable["name"] == "LEFTOVER_EXECUTORS"
    ]

    assert dict(pair.split("=") for pair in selector.split(",")).items() <= labels.items()
    assert labels["app.kubernetes.io/instance"] in selector


def test_one_that_has_to_go_hands_over_what_it_has_shuffled(jvm: Any, tmp_path: Path) -> None:
    """The hook calls what the image has; Spark adds it if executors are to decommission."""
    conf = conf_of(jvm, render("k8s", {"terminationGracePeriodSeconds": 240}), tmp_path)
    spec = executor_of(jvm, conf)["spec"]
    (container,) = spec["containers"]

    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["onceflow-drain"]
    assert spec["terminationGracePeriodSeconds"] == 240
    assert conf.getBoolean("spark.storage.decommission.enabled", False)


def test_one_on_a_node_that_does_not_answer_is_replaced_within_a_minute(
    jvm: Any, tmp_path: Path
) -> None:
    ours = [{"key": "spot", "operator": "Exists"}]
    manifests = render("k8s", {"tolerations": ours})
    pod = executor_of(jvm, conf_of(jvm, manifests, tmp_path))["spec"]
    driver = one(manifests, "StatefulSet")["spec"]["template"]["spec"]

    lost = {each["key"]: each.get("tolerationSeconds") for each in pod["tolerations"]}
    assert lost.pop("spot") is None
    assert lost == {f"node.kubernetes.io/{why}": 30 for why in ("not-ready", "unreachable")}
    assert driver["tolerations"] == ours


def test_spark_takes_the_bounds_of_a_number_that_changes(jvm: Any, tmp_path: Path) -> None:
    fixed = conf_of(jvm, render("k8s"), tmp_path)
    values: Values = {
        "executors.instances": 2,
        "executors.dynamic": {"max": 5, "idle": "90s"},
    }
    conf = conf_of(jvm, render("k8s", values), tmp_path)
    utils = jvm.org.apache.spark.util.Utils

    assert not utils.isDynamicAllocationEnabled(fixed)
    assert utils.isDynamicAllocationEnabled(conf)
    assert utils.getDynamicAllocationInitialExecutors(conf) == 2
    bounds = [conf.getInt(f"spark.dynamicAllocation.{end}Executors", -1) for end in ("min", "max")]
    assert bounds == [2, 5]
    for name in ("executorIdleTimeout", "shuffleTracking.timeout"):
        assert conf.getTimeAsSeconds(f"spark.dynamicAllocation.{name}") == 90


def test_it_finds_the_driver_and_room_for_its_files(jvm: Any, tmp_path: Path) -> None:
    pod = executor_of(jvm, conf_of(jvm, render("k8s"), tmp_path))
    (container,) = pod["spec"]["containers"]
    told = variables_of(pod)
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


def logged(log: Path, before: int) -> list[Any]:
    return [json.loads(line) for line in log.read_text().splitlines()[before:]]


def test_an_executor_logs_as_the_service_does(jvm: Any, log: Path) -> None:
    before = len(log.read_text().splitlines())
    spark = jvm.org.apache.logging.log4j.LogManager.getLogger("org.apache.spark.Something")
    spark.info("of no interest")
    spark.warn("nor this")
    spark.error('a "quoted"\nmessage', jvm.java.lang.IllegalStateException("the reason"))
    (told,) = logged(log, before)

    assert told["event"] == 'a "quoted"\nmessage'
    assert told["level"] == "error"
    assert told["logger"] == "org.apache.spark.Something"
    assert told["ts"] > 1_700_000_000_000
    assert "IllegalStateException: the reason" in told["exception"]


class Failing:
    """A block of Scala that raises."""

    def fail(self) -> None:
        raise ValueError("the driver's pod is not ready")

    def __getattr__(self, name: str) -> Any:
        if name == "apply$mcV$sp":
            return self.fail
        raise AttributeError(name)

    class Java:
        implements: ClassVar = ["scala.Function0"]


def test_what_spark_ignores_while_it_is_called_is_not_told(jvm: Any, log: Path) -> None:
    """The driver's pod cannot be ready before a pipeline runs: this is not reported."""
    before = len(log.read_text().splitlines())
    utils = jvm.org.apache.spark.util.Utils
    utils.tryLogNonFatalError(Failing())
    assert logged(log, before) == []

    java = jvm.java.lang.Thread.currentThread()
    name = java.getName()
    java.setName("kubernetes-executor-snapshots-subscribers-0")
    try:
        utils.tryLogNonFatalError(Failing())
    finally:
        java.setName(name)
    (told,) = logged(log, before)

    assert told["event"].startswith("Uncaught exception in thread kubernetes-executor")
    assert "the driver's pod is not ready" in told["exception"]
