"""Java classes of ours inside Spark's JVM: no jar to build, to ship, or to match with a version."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

_COMPILING = threading.Lock()


def load_classes(jvm: Any, source: str) -> Any:
    """Compile with Janino, which Spark compiles its plans with: Java 8 without lambdas.

    Once for each JVM, and not only to save time: Py4J remembers methods by the name of their class,
    and would take one of a class that was loaded before. So pipelines that start at the same time
    must wait for one another here.

    Args:
        jvm: Py4J's view of it.
        source: one compilation unit, with its package and imports.

    Returns:
        A class loader that knows these classes, and Spark's.
    """
    with _COMPILING:
        return _compiled(jvm, source)


@lru_cache(maxsize=16)
def _compiled(jvm: Any, source: str) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    return compiler.getClassLoader()


def new_instance(jvm: Any, loader: Any, name: str) -> Any:
    """An object of a class that Py4J cannot name, as it knows Spark's own loader only."""
    return jvm.java.lang.Class.forName(name, True, loader).newInstance()
