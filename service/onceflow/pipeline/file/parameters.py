"""The block `parameters:`, values that change while the pipeline runs, and their topic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from onceflow.contracts.block import Block, Combination
from onceflow.contracts.values import ParameterName, TopicName, fault
from onceflow.errors import ConfigError
from onceflow.processing.parameters import MAX_PARAMETERS, Parameter, Parameters


def _checked_type(text: str) -> str:
    try:
        return Parameter(text, "null").ddl
    except ConfigError as error:
        known = "boolean, a number, string, date or timestamp"
        raise fault("no parameter can have this type", expected=known) from error


class ParameterBlock(Block):
    """One value."""

    type: Annotated[str, AfterValidator(_checked_type)] = Field(
        description="Spark SQL type: `boolean`, a number, `string`, `date` or `timestamp`."
    )
    default: bool | int | float | str = Field(
        description="The value before any is on the topic; text for a date or a time."
    )

    @property
    def parameter(self) -> Parameter:
        """The declaration."""
        return Parameter(self.type, json.dumps(self.default))

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """A default of another type."""
        try:
            Parameter(str(given.get("type")), json.dumps(given.get("default"))).default_text  # noqa: B018
        except (ConfigError, TypeError):
            return
        except ValueError:
            if "default" in given:
                yield ("default",), fault("the default is not of the type")


class ParametersBlock(Block):
    """Where values come from, and which there are."""

    topic: TopicName = Field(
        description="Topic of one partition with a record for each change: key is the name, value"
        " is JSON; without a value, back to the default. Created, compacted, if it does not exist."
        " Several pipelines may share it."
    )
    values: dict[ParameterName, ParameterBlock] = Field(
        min_length=1,
        max_length=MAX_PARAMETERS,
        description="The parameters, by name; SQL reads `parameter('name')`, a processor"
        ' `self.parameters["name"]`.',
    )

    @property
    def declared(self) -> Parameters:
        """All declarations."""
        return Parameters({name: each.parameter for name, each in self.values.items()})
