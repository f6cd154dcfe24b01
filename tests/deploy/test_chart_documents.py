"""The chart's README and the guide to Kubernetes say what is so."""

from __future__ import annotations

import os
import re
import shlex

import pytest

from tests.deploy.chart import CHART, EXAMPLES, REWRITE, ROOT, manifests_in, run_helm
from tests.deploy.values_table import values_in, with_table
from tests.support.documents.markdown import Document

README = Document(CHART / "README.md")
GUIDE = Document(ROOT / "docs" / "kubernetes.md")
VALUES = (CHART / "values.yaml").read_text()


def helm_commands(document: Document) -> list[str]:
    texts = [block.text.replace("\\\n", " ") for block in document.blocks()]
    return [line for text in texts for line in text.splitlines() if line.startswith("helm ")]


INSTALLS = [
    command
    for document in (README, GUIDE)
    for command in helm_commands(document)
    if re.match(r"helm (install|upgrade) ", command)
]
assert len(INSTALLS) >= 3


def test_every_value_is_explained() -> None:
    values = values_in(VALUES)

    assert len(values) > 50
    assert [value.path for value in values if not value.meaning] == []


def test_the_table_is_that_of_the_values() -> None:
    """After a change on purpose: `make chart`."""
    text = with_table(README.text, values_in(VALUES))
    if os.environ.get(REWRITE):
        README.path.write_text(text)

    assert README.text == text


def test_a_value_without_a_comment_would_be_seen() -> None:
    text = "# A.\na: 1\n# B.\nb:\n  c: 2\n  # D.\n  d: {e: 3}\n"

    assert [(v.path, v.default, v.meaning) for v in values_in(text)] == [
        ("a", "1", "A."),
        ("b", "", "B."),
        ("b.c", "2", ""),
        ("b.d", '{"e": 3}', "D."),
    ]


@pytest.mark.parametrize("command", INSTALLS)
def test_the_commands_render(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    words = shlex.split(command)[2:]
    wanted = [word for word in words if word not in {"--install", "--wait", "--create-namespace"}]

    assert len(manifests_in(run_helm("template", *wanted))) > 3


def test_every_example_is_named() -> None:
    assert [name for name in EXAMPLES if f"examples/{name}.yaml" not in README.text] == []


def test_links_of_the_readme_lead_somewhere() -> None:
    missing = [
        target
        for target in README.links()
        if not (CHART / target.partition("#")[0]).resolve().exists()
    ]

    assert missing == []


def test_the_notes_name_the_next_command() -> None:
    example = str(EXAMPLES["local"])
    flags = ["--dry-run=client", "--namespace", "streams", "--values", example]
    notes = run_helm("install", "views", str(CHART), *flags).partition("NOTES:")[2]

    assert "kubectl --namespace streams logs --follow views-0" in notes
    assert "exec views-0 -- onceflow status page-views" in notes
    assert "helm test views --namespace streams --logs" in notes
