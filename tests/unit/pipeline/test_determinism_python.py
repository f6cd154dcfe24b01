"""Which Python functions cannot be replayed, by their source; each rule has a passing twin."""

from __future__ import annotations

import importlib.util
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceflow.pipeline.determinism import python_code
from onceflow.pipeline.determinism.python_code import CodeFinding, inspect_code
from onceflow.pipeline.file.rules import Rule

Inspect = Callable[..., list[CodeFinding]]


@pytest.fixture
def inspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inspect:
    """Inspects `f` of a module of this text, in a folder with modules of other texts."""

    def inspected(text: str, name: str = "f", **others: str) -> list[CodeFinding]:
        for other, other_text in others.items():
            _import(tmp_path, other, other_text, monkeypatch)
        module = _import(tmp_path, f"functions_{uuid.uuid4().hex[:8]}", text, monkeypatch)
        return [*inspect_code([getattr(module, name)], tmp_path).findings]

    return inspected


def _import(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    file = folder / f"{name}.py"
    name = file.stem
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


UNREPEATABLE = {
    "a module's function": (Rule.ND_RANDOM, "import random\ndef f(x): return random.random()"),
    "imported by name": (
        Rule.ND_RANDOM,
        "from random import randint as r\ndef f(x): return r(1, 6)",
    ),
    "imported inside": (
        Rule.ND_RANDOM,
        "def f(x):\n    import random as r\n    return r.choice(x)",
    ),
    "a generator without a seed": (
        Rule.ND_RANDOM,
        "import random\ndef f(x):\n    rng = random.Random()\n    return rng.random()",
    ),
    "a shared generator": (
        Rule.ND_RANDOM,
        "import random\nRNG = random.Random(5)\ndef f(x): return RNG.random()",
    ),
    "uuid": (Rule.ND_RANDOM, "import uuid\ndef f(x): return str(uuid.uuid4())"),
    "secrets": (Rule.ND_RANDOM, "import secrets\ndef f(x): return secrets.token_hex(4)"),
    "urandom": (Rule.ND_RANDOM, "from os import urandom\ndef f(x): return urandom(4)"),
    "numpy": (Rule.ND_RANDOM, "import numpy as np\ndef f(x): return np.random.rand()"),
    "handed on": (Rule.ND_RANDOM, "import random\ndef f(xs): return sorted(xs, key=random.choice)"),
    "time": (Rule.ND_CLOCK, "import time\ndef f(x): return time.time()"),
    "now": (Rule.ND_CLOCK, "from datetime import datetime\ndef f(x): return datetime.now()"),
    "now in a zone": (
        Rule.ND_CLOCK,
        "import datetime as d\ndef f(x): return d.datetime.now(d.timezone.utc)",
    ),
    "today": (Rule.ND_CLOCK, "import datetime\ndef f(x): return datetime.date.today()"),
    "a time that is left out": (Rule.ND_CLOCK, "import time\ndef f(x): return time.gmtime()"),
    "a default": (Rule.ND_CLOCK, "import time\ndef f(x, at=time.time()): return at"),
    "pandas": (Rule.ND_CLOCK, "import pandas as pd\ndef f(x): return pd.Timestamp.now()"),
    "in a lambda": (Rule.ND_CLOCK, "import time\nf = lambda x: time.time()"),
    "in a comprehension": (
        Rule.ND_CLOCK,
        "import time\ndef f(xs): return [time.time() for x in xs]",
    ),
    "in a function of a function": (
        Rule.ND_CLOCK,
        "import time\ndef f(x):\n    def g(): return time.time()\n    return g()",
    ),
    "through a call": (
        Rule.ND_CLOCK,
        "import time\ndef g(): return time.time()\ndef f(x): return g()",
    ),
    "through a method": (
        Rule.ND_CLOCK,
        "import time\nclass A:\n    def g(self): return time.time()\ndef f(x): return A().g()",
    ),
    "through a partial": (
        Rule.ND_CLOCK,
        "import functools, time\ndef g(a, x): return time.time()\nf = functools.partial(g, 1)",
    ),
    "through a decorator": (
        Rule.ND_CLOCK,
        (
            "import functools, time\n"
            "def late(g):\n"
            "    @functools.wraps(g)\n"
            "    def h(x): return g(x), time.time()\n"
            "    return h\n"
            "@late\ndef f(x): return x"
        ),
    ),
    "a free variable": (
        Rule.ND_CLOCK,
        "import time\ndef g(now):\n    def f(x): return now()\n    return f\nf = g(time.time)",
    ),
    "a web service": (
        Rule.ND_EFFECT,
        "import urllib.request\ndef f(x): return urllib.request.urlopen(x).read()",
    ),
    "through a property": (
        Rule.ND_CLOCK,
        (
            "import time\nclass A:\n    @property\n    def g(self): return time.time()\n"
            "def f(x): return A().g"
        ),
    ),
    "an argument of an inner call": (
        Rule.ND_CLOCK,
        "import time\nfrom pathlib import Path\ndef f(x): return Path(str(time.time())).suffix",
    ),
    "a file": (Rule.ND_EFFECT, "def f(x): return open(x).read()"),
    "a path": (Rule.ND_EFFECT, "from pathlib import Path\ndef f(x): return Path(x).read_text()"),
    "threads": (
        Rule.ND_EFFECT,
        (
            "from concurrent.futures import ThreadPoolExecutor\n"
            "def f(xs):\n    with ThreadPoolExecutor() as p: return list(p.map(str, xs))"
        ),
    ),
    "a process": (Rule.ND_EFFECT, "import subprocess\ndef f(x): return subprocess.run(x)"),
    "the environment": (Rule.ND_ENV, "import os\ndef f(x): return os.environ['HOME']"),
    "the environment's method": (Rule.ND_ENV, "import os\ndef f(x): return os.environ.get('HOME')"),
    "getenv": (Rule.ND_ENV, "import os\ndef f(x): return os.getenv('HOME')"),
    "hash of text": (Rule.ND_ENV, "def f(x): return hash(x)"),
    "an address": (Rule.ND_LAYOUT, "def f(x): return id(x)"),
    "a process id": (Rule.ND_LAYOUT, "import os\ndef f(x): return os.getpid()"),
    "a partition": (
        Rule.ND_LAYOUT,
        "from pyspark import TaskContext\ndef f(x): return TaskContext.get().partitionId()",
    ),
    "a counter": (
        Rule.ND_GLOBAL,
        "COUNT = 0\ndef f(x):\n    global COUNT\n    COUNT += 1\n    return COUNT",
    ),
    "a cache": (
        Rule.ND_GLOBAL,
        "SEEN = {}\ndef f(x):\n    SEEN[x] = len(SEEN)\n    return SEEN[x]",
    ),
    "changed elsewhere": (
        Rule.ND_GLOBAL,
        "RATES = {}\ndef load(k, v): RATES.update({k: v})\ndef f(x): return RATES[x]",
    ),
    "a shared iterator": (
        Rule.ND_GLOBAL,
        "import itertools\nIDS = itertools.count()\ndef f(x): return next(IDS)",
    ),
    "a free counter": (
        Rule.ND_GLOBAL,
        (
            "def make():\n    n = 0\n    def f(x):\n        nonlocal n\n        n += 1\n"
            "        return n\n    return f\nf = make()"
        ),
    ),
}
REPEATABLE = {
    "arithmetic": "def f(x): return x * 2 + abs(x)",
    "a seeded generator": (
        "import random\ndef f(x):\n    rng = random.Random(x)\n    return rng.random()"
    ),
    "a named uuid": "import uuid\ndef f(x): return str(uuid.uuid5(uuid.NAMESPACE_URL, x))",
    "a given time": "import time\ndef f(x): return time.gmtime(x)",
    "dates": (
        "from datetime import datetime, timezone\n"
        "def f(x): return datetime.fromtimestamp(x, timezone.utc).isoformat()"
    ),
    "a path that is only text": "from pathlib import Path\ndef f(x): return Path(x).suffix",
    "a constant table": "RATES = {'EUR': 2}\ndef f(x): return RATES.get(x, 1)",
    "a list of its own": "def f(xs):\n    seen = []\n    for x in xs: seen.append(x)\n"
    "    return seen",
    "a name that hides a module": "import random\ndef f(random): return random.random()",
    "a local function named like one": "def f(x):\n    def hash(y): return y\n    return hash(x)",
    "json and hashes": (
        "import hashlib, json\ndef f(x): return hashlib.sha256(json.dumps(x).encode()).hexdigest()"
    ),
    "what it does not mention": "import time\ndef g(): return time.time()\ndef f(x): return x",
    "recursion": "def f(x): return x and f(x - 1)",
}


@pytest.mark.parametrize(("rule", "text"), UNREPEATABLE.values(), ids=UNREPEATABLE)
def test_what_a_replay_would_find_different_is_found(
    inspected: Inspect, rule: Rule, text: str
) -> None:
    found = inspected(text)
    assert {finding.rule for finding in found} == {rule}, found


@pytest.mark.parametrize("text", REPEATABLE.values(), ids=REPEATABLE)
def test_what_can_be_replayed_is_left_alone(inspected: Inspect, text: str) -> None:
    assert inspected(text) == []


def test_a_finding_tells_its_place(inspected: Inspect, tmp_path: Path) -> None:
    (found,) = inspected(
        "import clocks\n\ndef f(x):\n    return clocks.stamp(x)\n",
        clocks="import time as t\n\n\ndef stamp(x):\n    at = x or t.time()\n    return at\n",
    )
    assert found == CodeFinding(Rule.ND_CLOCK, "time.time", tmp_path / "clocks.py", 5, 15, "stamp")


PROCESSOR = """
from pyspark.sql.streaming import StatefulProcessor
class Counter(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.count = 0
    def handleInputRows(self, key, rows, timers):
        {}
        yield from rows
    def close(self): pass
"""


@pytest.mark.parametrize(
    "statement",
    ["self.count += 1", "self.count = 5", "self.seen[key] = 1", "self.seen.append(key)"],
)
def test_a_processors_own_attributes_are_no_state(inspected: Inspect, statement: str) -> None:
    found = inspected(PROCESSOR.format(statement), "Counter")
    assert [finding.rule for finding in found] == [Rule.ND_STATE]


def test_a_processor_of_ours_sets_no_attributes_when_it_is_made_either(inspected: Inspect) -> None:
    """The same at run time: `tests/unit/processing/test_checks.py`."""
    code = PROCESSOR.replace("def init", "def __init__").format("pass")
    ours = code.replace("pyspark.sql.streaming", "onceflow.processing")
    found = inspected(ours.replace("StatefulProcessor", "Processor"), "Counter")
    assert [finding.rule for finding in found] == [Rule.ND_STATE, Rule.ND_STATE]


def test_a_processor_may_use_its_handle(inspected: Inspect) -> None:
    assert inspected(PROCESSOR.format("self.handle.getValueState('n')"), "Counter") == []


def test_a_function_wrapped_by_spark_is_looked_into(inspected: Inspect) -> None:
    found = inspected(
        "import time\nfrom pyspark.sql.functions import udf\n"
        "from pyspark.sql.types import DoubleType\n"
        "@udf(DoubleType())\ndef stamp(x): return time.time()\n"
        "def f(frame): return frame.select(stamp('x'))\n"
    )
    assert [finding.rule for finding in found] == [Rule.ND_CLOCK]


def test_a_package_that_is_installed_below_the_folder_is_not_the_users(
    inspected: Inspect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_code, "INSTALLED", [tmp_path / "venv"])
    (tmp_path / "venv").mkdir()
    clocks = "import time\ndef stamp(x): return time.time()\n"
    found = inspected("import clocks\ndef f(x): return clocks.stamp(x)", **{"venv/clocks": clocks})
    assert [finding.rule for finding in found] == [Rule.UNPROVEN_FUNCTION]


def test_what_cannot_be_looked_into_is_said(inspected: Inspect) -> None:
    found = inspected("import fastavro\ndef f(x): return fastavro.schema.fullname(x)")
    assert [(finding.rule, finding.name) for finding in found] == [
        (Rule.UNPROVEN_FUNCTION, "fastavro.schema.fullname")
    ]
