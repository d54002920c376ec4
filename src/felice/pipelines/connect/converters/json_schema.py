"""Confluent's JsonSchemaConverter: the id of a JSON Schema in a registry, then the JSON."""

from __future__ import annotations

import decimal
import json
from typing import Any, ClassVar

from felice.client.schema_registry.json_format import JsonFormat
from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    one_of_any_case,
)
from felice.pipelines.connect.converters.json_schemas import Reading, json_schema
from felice.pipelines.connect.converters.json_values import Style, from_json, json_bytes, parsed_json, to_json
from felice.pipelines.connect.converters.registry import (
    REGISTRY,
    Read,
    RegistryConverter,
    Write,
    not_supported,
)
from felice.pipelines.connect.model.schema import Schema

_DECODER = json.JSONDecoder(parse_float=decimal.Decimal)


class JsonSchemaConverter(RegistryConverter):
    """See the module. What is read is not compared with keywords that only limit values, such as `minimum`."""

    label = "JSON"
    definitions: ClassVar = REGISTRY + ConfigDefinitions(
        [
            Definition(
                "decimal.format",
                Type.STRING,
                "BASE64",
                "How decimals are written: BASE64 or NUMERIC.",
                Importance.LOW,
                one_of_any_case("BASE64", "NUMERIC"),
            ),
            Definition(
                "object.additional.properties",
                Type.BOOLEAN,
                True,
                "Whether objects of schemas that are registered may have other members.",
                Importance.MEDIUM,
            ),
            Definition(
                "use.optional.for.nonrequired",
                Type.BOOLEAN,
                False,
                "Whether members that a schema does not require are optional.",
                Importance.MEDIUM,
            ),
            *not_supported("json.fail.invalid.schema", "generalized.sum.type.support"),
        ]
    )

    def _format(self) -> JsonFormat:
        return JsonFormat()

    @property
    def _style(self) -> Style:
        is_numeric = self.config["decimal.format"].upper() == "NUMERIC"
        return Style(is_numeric, fills=True, has_entries=True)

    def _text(self, schema: Schema) -> str:
        made = json_schema(schema, self._style, is_open=self.config["object.additional.properties"])
        return json_bytes(made).decode()

    def _writer(self, schema: Schema, parsed: Any) -> Write:
        style = self._style
        return lambda value: json_bytes(to_json(schema, value, style))

    def _reader(self, parsed: Any) -> Read:
        style = self._style
        may_miss: bool = self.config["use.optional.for.nonrequired"]
        schema = Reading(parsed.schema, style, may_miss=may_miss).schema()
        return lambda data: (schema, from_json(schema, parsed_json(data, _DECODER), style))
