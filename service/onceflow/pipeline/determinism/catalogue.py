"""Names whose use makes a replay compute other rows, and the rule that each of them breaks.

Of Python by the name of the definition (`datetime.datetime.now`), of SQL by the function's name.
"""

from __future__ import annotations

from collections.abc import Mapping

from onceflow.pipeline.file.rules import Rule

PYTHON: Mapping[str, Rule] = {
    "builtins.hash": Rule.ND_ENV,
    "builtins.id": Rule.ND_LAYOUT,
    "builtins.input": Rule.ND_EFFECT,
    "builtins.open": Rule.ND_EFFECT,
    "datetime.date.today": Rule.ND_CLOCK,
    "datetime.datetime.now": Rule.ND_CLOCK,
    "datetime.datetime.today": Rule.ND_CLOCK,
    "datetime.datetime.utcnow": Rule.ND_CLOCK,
    "getpass.getuser": Rule.ND_ENV,
    "io.open": Rule.ND_EFFECT,
    "numpy.random": Rule.ND_RANDOM,
    "os.cpu_count": Rule.ND_ENV,
    "os.environ": Rule.ND_ENV,
    "os.getcwd": Rule.ND_ENV,
    "os.getenv": Rule.ND_ENV,
    "os.getpid": Rule.ND_LAYOUT,
    "os.getrandom": Rule.ND_RANDOM,
    "os.listdir": Rule.ND_EFFECT,
    "os.popen": Rule.ND_EFFECT,
    "os.scandir": Rule.ND_EFFECT,
    "os.system": Rule.ND_EFFECT,
    "os.urandom": Rule.ND_RANDOM,
    "pandas.Timestamp.now": Rule.ND_CLOCK,
    "pandas.Timestamp.today": Rule.ND_CLOCK,
    "pandas.Timestamp.utcnow": Rule.ND_CLOCK,
    "pyspark.Accumulator": Rule.ND_GLOBAL,
    "pyspark.TaskContext": Rule.ND_LAYOUT,
    "socket.gethostname": Rule.ND_ENV,
    "sys.argv": Rule.ND_ENV,
    "threading.get_ident": Rule.ND_LAYOUT,
    "uuid.getnode": Rule.ND_ENV,
    "uuid.uuid1": Rule.ND_RANDOM,
    "uuid.uuid4": Rule.ND_RANDOM,
    **dict.fromkeys(
        (
            "time.monotonic",
            "time.monotonic_ns",
            "time.perf_counter",
            "time.perf_counter_ns",
            "time.process_time",
            "time.process_time_ns",
            "time.thread_time",
            "time.time",
            "time.time_ns",
        ),
        Rule.ND_CLOCK,
    ),
    # Whole modules: whatever is used of them.
    **dict.fromkeys(("random", "secrets"), Rule.ND_RANDOM),
    **dict.fromkeys(("locale", "platform"), Rule.ND_ENV),
    **dict.fromkeys(
        (
            "aiohttp",
            "asyncio",
            "boto3",
            "concurrent",
            "confluent_kafka",
            "ftplib",
            "glob",
            "http.client",
            "httpx",
            "kafka",
            "multiprocessing",
            "psycopg",
            "psycopg2",
            "redis",
            "requests",
            "shelve",
            "shutil",
            "smtplib",
            "socket",
            "sqlalchemy",
            "sqlite3",
            "subprocess",
            "tempfile",
            "threading",
            "urllib.request",
            "urllib3",
        ),
        Rule.ND_EFFECT,
    ),
    **dict.fromkeys(
        (
            f"pathlib.Path.{name}"
            for name in ("glob", "iterdir", "open", "read_bytes", "read_text", "stat", "write_text")
        ),
        Rule.ND_EFFECT,
    ),
}
"""The longest name that matches counts, so that a part of a module may differ from the rest."""

SEEDED = frozenset({"random.Random", "numpy.random.default_rng", "numpy.random.RandomState"})
"""Harmless when called with a seed."""
GIVEN_A_TIME: Mapping[str, int] = {
    "time.ctime": 0,
    "time.gmtime": 0,
    "time.localtime": 0,
    "time.strftime": 1,
}
"""Functions that read the clock if they are called with so few arguments or fewer."""

PURE_MODULES = frozenset(
    {
        "_operator",
        "array",
        "base64",
        "binascii",
        "bisect",
        "builtins",
        "calendar",
        "cmath",
        "collections",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "html",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "numbers",
        "numpy",
        "operator",
        "pandas",
        "pyarrow",
        "pyspark",
        "re",
        "statistics",
        "string",
        "struct",
        "textwrap",
        "types",
        "typing",
        "unicodedata",
        "urllib.parse",
        "uuid",
        "zlib",
        "zoneinfo",
    }
)
"""Modules whose other functions give the same result for the same arguments."""

SQL: Mapping[str, Rule] = {
    "input_file_block_length": Rule.ND_LAYOUT,
    "input_file_block_start": Rule.ND_LAYOUT,
    "input_file_name": Rule.ND_LAYOUT,
    "monotonically_increasing_id": Rule.ND_LAYOUT,
    "spark_partition_id": Rule.ND_LAYOUT,
}
"""Functions that Catalyst calls nondeterministic and that are not random, which the others are."""


def python_rule(name: str) -> Rule | None:
    """The rule that the use of a definition breaks.

    Args:
        name: of the definition, with its module.
    """
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if rule := PYTHON.get(".".join(parts[:length])):
            return rule
    return None


def is_pure(name: str) -> bool:
    """Whether a definition is of a module that is known to be repeatable."""
    parts = name.split(".")
    return any(".".join(parts[:length]) in PURE_MODULES for length in range(1, len(parts) + 1))
