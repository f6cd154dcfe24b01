"""The example of references, by the commands of its README."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.brokers.choice import RunningBroker
from tests.support.documents.markdown import ROOT, Document
from tests.support.drivers.service import QUICK
from tests.support.outside.history import read_ledger, read_topic

EXAMPLE = ROOT / "examples" / "named-trades"
TIMEOUT_S = 240
NAMES = {"AAPL": "Apple Inc.", "F": "Ford Motor Co.", "GOOGL": "Alphabet Inc."}


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_the_readme_names_trades_and_takes_over_a_new_file(
    broker: RunningBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "named-trades"
    shutil.copytree(EXAMPLE, folder)
    suffix = uuid.uuid4().hex[:8]
    pipeline = (folder / "pipeline.yaml").read_text()
    for name in ("topics: [trades", "topic: named-trades", "name: named-trades"):
        pipeline = pipeline.replace(name, f"{name}-{suffix}")
    (folder / "pipeline.yaml").write_text(pipeline)
    blocks = [b.text for b in Document(EXAMPLE / "README.md").blocks() if b.language == "bash"]
    first, second = (
        block.replace("produce trades", f"produce trades-{suffix}").replace(
            "consume named-trades", f"consume named-trades-{suffix}"
        )
        for block in blocks
    )

    def run(block: str) -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        more = {**QUICK, "ONCEFLOW_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "PATH": path}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=folder,
            env={**os.environ, **more},
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def names() -> list[tuple[str, str | None]]:
        rows = [w.row for w in read_topic(broker.bootstrap_servers, f"named-trades-{suffix}")]
        return [(row["symbol"], row["name"]) for row in rows]

    def versions() -> list[str]:
        heads = read_ledger(broker.bootstrap_servers, f"named-trades-{suffix}")
        return [head["references"]["names"]["of"] for head in heads if head["batch_id"] >= 0]

    before = hashlib.sha256((folder / "names.csv").read_bytes()).hexdigest()
    printed = run(first)
    rows = [
        json.loads(line)
        for line in (EXAMPLE / "data" / "trades.jsonl").read_text().split("\n")
        if line
    ]
    assert sorted(names(), key=str) == sorted(
        ((row["symbol"], NAMES.get(row["symbol"])) for row in rows), key=str
    )
    assert "Alphabet Inc." in printed
    assert {*versions()} == {before}
    status = run(second)
    after = hashlib.sha256((folder / "names.csv").read_bytes()).hexdigest()
    assert f"reference names: {after}" in status
    again = names()[len(rows) :]
    assert sorted(again) == sorted(
        (row["symbol"], {**NAMES, "KX": "KX Systems"}[row["symbol"]]) for row in rows
    )
    assert versions()[-1] == after != before
