"""Java classes of ours inside Spark's JVM: no jar to build, to ship, or to match with a version."""

from __future__ import annotations

from typing import Any


def load_classes(jvm: Any, source: str) -> Any:
    """Compile with Janino, which Spark compiles its plans with: Java 8 without lambdas.

    Args:
        jvm: Py4J's view of it.
        source: one compilation unit, with its package and imports.

    Returns:
        A new class loader that knows these classes, and Spark's.
    """
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    return compiler.getClassLoader()


def new_instance(jvm: Any, loader: Any, name: str) -> Any:
    """An object of a class that Py4J cannot name, as it knows Spark's own loader only."""
    return jvm.java.lang.Class.forName(name, True, loader).newInstance()
