"""Settings of Spark that keep queries to their sources. They cannot be changed."""

from __future__ import annotations

from collections.abc import Mapping

PINNED: Mapping[str, str] = {
    # `json.`/path/of/a/file`` in a query is a file otherwise.
    "spark.sql.runSQLOnFiles": "false",
    # `${env:NAME}` in a query is replaced by the process's environment otherwise.
    "spark.sql.variable.substitute": "false",
    # Hadoop reads any of these addresses otherwise, wherever Spark takes a path.
    **{
        f"spark.hadoop.fs.{scheme}.impl": "onceflow.no.such.FileSystem"
        for scheme in ("http", "https", "ftp", "sftp")
    },
}
"""Settings of every session."""

JAVA_OPTIONS = "-Djavax.xml.accessExternalDTD= -Djavax.xml.accessExternalSchema="
"""No markup makes Java fetch a DTD or a schema from anywhere, files included."""
