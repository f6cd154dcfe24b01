"""The kinds of files that users write: `kind:` in the file."""

from __future__ import annotations

from enum import StrEnum


class FileKind(StrEnum):
    """The kind of a file that a user writes."""

    PIPELINE = "pipeline"
    """The only kind that needs Spark. A file that does not say its kind is one."""
    DELIVERY = "delivery"
    ENRICHMENT = "enrichment"
    GATEWAY = "gateway"

    @property
    def with_article(self) -> str:
        """One of them."""
        return f"an {self}" if self is FileKind.ENRICHMENT else f"a {self}"

    @property
    def plural(self) -> str:
        """Several of them."""
        return "deliveries" if self is FileKind.DELIVERY else f"{self}s"


def kind_in(data: object) -> FileKind:
    """The kind that the content of a file says; of a pipeline if it says none that there is."""
    said = data.get("kind") if isinstance(data, dict) else None
    return next((kind for kind in FileKind if kind == said), FileKind.PIPELINE)
