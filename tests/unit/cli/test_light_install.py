"""The command line without extras, as `pip install onceflow` leaves it: no Spark, no Arrow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

FILE = """\
apiVersion: onceflow/v1
kind: delivery
name: copy
from: {topics: [page-views]}
to:
  kafka: {bootstrap_servers: "127.0.0.1:1", topic: copied}
"""
GATEWAY = """\
apiVersion: onceflow/v1
kind: gateway
name: shop
topics: {page-views: {}}
"""
BLOCKING = """\
import sys
from importlib.machinery import PathFinder

class Light(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        is_missing = name.partition(".")[0] in {blocked!r}
        return None if is_missing else super().find_spec(name, path, target)

sys.meta_path = [Light if finder is PathFinder else finder for finder in sys.meta_path]
from onceflow.cli.main import main

main()
"""


def needed(name: str, extras: frozenset[str] = frozenset({""})) -> Iterator[str]:
    """The packages that one needs, and those that they need."""
    yield name
    for text in requires(name) or ():
        found = Requirement(text)
        if any(found.marker is None or found.marker.evaluate({"extra": e}) for e in extras):
            try:
                yield from needed(found.name.lower(), frozenset({"", *found.extras}))
            except ModuleNotFoundError:  # not for this Python or this machine
                continue


def of_extras() -> set[str]:
    """Modules that only extras bring."""
    base = {name.replace("_", "-") for name in needed("onceflow")}
    return {
        module
        for module, packages in packages_distributions().items()
        if not any(package.lower().replace("_", "-") in base for package in packages)
    }


def test_what_extras_bring_is_told_from_what_is_always_there() -> None:
    found = of_extras()
    assert {"pyspark", "pyarrow", "pandas", "fastapi", "aiohttp", "psycopg", "deltalake"} <= found
    assert not {"onceflow", "confluent_kafka", "pydantic", "yaml", "typer", "rich"} & found


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (["validate", "{file}"], 0, "valid: exactly once from topic to topic"),
        (["explain", "{file}"], 0, "records and position in one step"),
        (["validate", "--schema", "--kind", "delivery"], 0, "Onceflow delivery"),
        (["run", "{file}"], 3, "no Kafka broker answers"),
        (["status", "{file}"], 3, "no Kafka broker answers"),
        (["why-stuck", "{file}"], 3, "no Kafka broker answers"),
        (["consume", "views", "--timeout", "1"], 3, "no Kafka broker answers"),
        (["serve", "{file}"], 2, "`pip install 'onceflow[serve]'`"),
        (["validate", "{gateway}"], 0, "valid: exactly once for posts with"),
        (["run", "{gateway}"], 2, "`pip install 'onceflow[gateway]'`"),
        (["why-stuck", "{gateway}"], 3, "no Kafka broker answers"),
        (["acls", "{gateway}"], 0, "onceflow-gateway.shop.*"),
        (["acls", "{file}"], 0, "onceflow-delivery.copy.*"),
        (["run", "{pipeline}"], 2, "`pip install 'onceflow[service]'`"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_commands_work_without_extras_or_name_the_extra(
    command: list[str], code: int, told: str, tmp_path: Path
) -> None:
    (tmp_path / "delivery.yaml").write_text(FILE)
    (tmp_path / "pipeline.yaml").write_text("apiVersion: onceflow/v1\nname: views\n")
    (tmp_path / "gateway.yaml").write_text(GATEWAY)
    names = {kind: f"{kind}.yaml" for kind in ("pipeline", "gateway")} | {"file": "delivery.yaml"}
    arguments = [part.format(**names) for part in command]
    program = BLOCKING.format(blocked=of_extras())
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=tmp_path,
        env={"ONCEFLOW_BOOTSTRAP_SERVERS": "127.0.0.1:1", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert told in done.stdout + done.stderr
    assert done.returncode == code
