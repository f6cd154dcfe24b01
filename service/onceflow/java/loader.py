"""Loads our Java classes into Spark's JVM.

They are compiled from `src/` with Janino, which Spark compiles its plans with, so a Java runtime is
enough: once for a Python environment (`compiled.py`). Janino knows Java 8 without lambdas, and
takes no notice of type parameters.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from onceflow.java.compiled import SOURCES, compiled_jar

_LOADING = threading.Lock()


def class_loader(jvm: Any, sources: Path = SOURCES) -> Any:
    """The class loader that knows the classes of a folder, and Spark's.

    One for each JVM, and not only to save time: Py4J remembers methods by the name of their class,
    and would take one of a class that was loaded before.

    Args:
        jvm: Py4J's view of it.
        sources: folder with a folder for each package.
    """
    with _LOADING:
        return _class_loader(jvm, sources)


@lru_cache(maxsize=16)
def _class_loader(jvm: Any, sources: Path) -> Any:
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    jar = compiled_jar(sources)
    if jar.is_file():
        url = jvm.java.io.File(str(jar)).toURI().toURL()
        urls = jvm.java.lang.reflect.Array.newInstance(url.getClass(), 1)
        jvm.java.lang.reflect.Array.set(urls, 0, url)
        return jvm.java.net.URLClassLoader(urls, parent)
    resource = jvm.org.codehaus.commons.compiler.util.resource
    finder = resource.DirectoryResourceFinder(jvm.java.io.File(str(sources)))
    return jvm.org.codehaus.janino.JavaSourceClassLoader(parent, finder, "UTF-8")


def new_instance(jvm: Any, name: str) -> Any:
    """Make an object of one of our classes. Py4J cannot name it: it knows Spark's own loader only.

    Args:
        jvm: Py4J's view of it.
        name: of the class, without its package.
    """
    loader = class_loader(jvm)
    with _LOADING:  # pipelines that start at the same time wait for one another
        found = jvm.java.lang.Class.forName(f"onceflow.{name}", True, loader)
    return found.newInstance()
