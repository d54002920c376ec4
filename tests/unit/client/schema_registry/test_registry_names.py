"""`felice.client.schema_registry` has confluent_kafka's public names, members and parameters, except for a list."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

SUBMODULES = ("", "avro", "error", "json_schema", "protobuf", "schema_registry_client", "serde")

_RULES = "rules of data contracts are not executed"
_WALKS = "it walks through data for a rule"
_OAUTH = "tokens of cloud issuers are not supported"
_INSIDE = "a part of confluent_kafka's implementation"

ABSENT = {
    "DLQ_HEADER_PREFIX": _RULES,
    "DLQ_RULE_EXCEPTION_HEADER": _RULES,
    "DLQ_RULE_MODE_HEADER": _RULES,
    "DLQ_RULE_NAME_HEADER": _RULES,
    "DLQ_RULE_SUBJECT_HEADER": _RULES,
    "DLQ_RULE_TOPIC_HEADER": _RULES,
    "ErrorAction": _RULES,
    "FieldContext": _RULES,
    "FieldRuleExecutor": _RULES,
    "FieldTransform": _RULES,
    "FieldTransformer": _RULES,
    "FieldType": _RULES,
    "Migration": _RULES,
    "NoneAction": _RULES,
    "RuleAction": _RULES,
    "RuleBase": _RULES,
    "RuleConditionError": _RULES,
    "RuleContext": _RULES,
    "RuleError": _RULES,
    "RuleExecutor": _RULES,
    "VALIDATION_RULES_PROP": _RULES,
    "ValidationRule": _RULES,
    "ValidationRuleError": _RULES,
    "ValidationRuleExecutor": _RULES,
    "ValidationRulesExecution": _RULES,
    "clear_original_key": _RULES,
    "configure_validation_rules": _RULES,
    "default_validation_rule_executor": _RULES,
    "evaluate_validation_rule": _RULES,
    "get_original_key": _RULES,
    "parse_validation_rules": _RULES,
    "set_original_key": _RULES,
    "get_inline_tags": _WALKS,
    "get_type": _WALKS,
    "is_map_field": _WALKS,
    "transform": _WALKS,
    "validate_message": _WALKS,
    "OAuthTokenError": _OAUTH,
    "LocalSchemaRepository": _INSIDE,
    "ParsedSchemaCache": _INSIDE,
    "VALID_AUTH_PROVIDERS": _INSIDE,
    "configure_subject_name_strategy": _INSIDE,
    "full_jitter": _INSIDE,
    "is_retriable": _INSIDE,
    "is_success": _INSIDE,
    "normalize_identity_pool": _INSIDE,
    "parse_schema_with_repo": _INSIDE,
    "decimal_to_protobuf": "there are no functions for values of confluent.type.Decimal and Variant",
    "protobuf_to_decimal": "there are no functions for values of confluent.type.Decimal and Variant",
    "protobuf_to_variant": "there are no functions for values of confluent.type.Decimal and Variant",
    "variant_to_protobuf": "there are no functions for values of confluent.type.Decimal and Variant",
}
"""Names that confluent_kafka has and Felice lacks."""


def public_names(module: Any) -> list[str]:
    """Names that the module offers: those of `__all__`, or those that confluent_kafka's registry package defines."""
    found = []
    for name, value in vars(module).items():
        home = getattr(value, "__module__", module.__name__)
        own = str(home).startswith("confluent_kafka.schema_registry") or isinstance(value, str | list)
        if not name.startswith("_") and not inspect.ismodule(value) and own:
            found.append(name)
    return sorted(found)


def rows() -> Iterator[tuple[str, str, Any, Any]]:
    for submodule in SUBMODULES:
        suffix = f".{submodule}" if submodule else ""
        theirs = importlib.import_module(f"confluent_kafka.schema_registry{suffix}")
        ours = importlib.import_module(f"felice.client.schema_registry{suffix}")
        for name in public_names(theirs):
            if hasattr(ours, name) or name not in ABSENT:
                yield submodule, name, getattr(theirs, name), getattr(ours, name, None)


ROWS = list(rows())
CLASSES = [row for row in ROWS if inspect.isclass(row[2])]


def test_the_comparison_sees_the_names() -> None:
    names = {(submodule, name) for submodule, name, *_ in ROWS}
    assert {("avro", "AsyncAvroSerializerBuilder"), ("", "SchemaReference"), ("serde", "SchemaId")} <= names
    assert len(ROWS) > 80


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}.{row[1]}")
def test_a_public_name_exists_with_its_members_and_parameters(row: tuple[str, str, Any, Any]) -> None:
    _, name, theirs, ours = row
    assert ours is not None, name
    assert callable(theirs) == callable(ours)
    if isinstance(theirs, str):
        assert ours == theirs
    elif inspect.isclass(theirs):
        members = [member for member in dir(theirs) if not member.startswith("_") and member not in ABSENT]
        assert not [member for member in members if not hasattr(ours, member)]
        for member in ("__init__", *members):
            check_parameters(getattr(theirs, member), getattr(ours, member))
    elif inspect.isfunction(theirs):
        check_parameters(theirs, ours)


def check_parameters(theirs: Any, ours: Any) -> None:
    if not inspect.isfunction(theirs) and not inspect.ismethod(theirs):
        return
    names = list(inspect.signature(theirs).parameters)
    if not {"args", "kwds", "values"} & set(names):
        assert list(inspect.signature(ours).parameters) == names, theirs


def test_every_absent_name_is_one_of_confluent_kafka() -> None:
    offered = set()
    for submodule in SUBMODULES:
        suffix = f".{submodule}" if submodule else ""
        module = importlib.import_module(f"confluent_kafka.schema_registry{suffix}")
        for name in [*public_names(module), "FieldTransform", "FieldTransformer"]:
            offered.add(name)
            offered |= set(dir(getattr(module, name, None)))
    assert not set(ABSENT) - offered


def test_default_values_are_confluent_kafkas() -> None:
    for _, name, theirs, ours in CLASSES:
        if issubclass(theirs, str):
            assert [one.value for one in theirs] == [str(one) for one in ours]
            continue
        if name.startswith(("Async", "SchemaReg")):
            continue
        mine = {one.name: one.default for one in inspect.signature(ours.__init__).parameters.values()}
        for parameter in inspect.signature(theirs.__init__).parameters.values():
            simple = (bool, int, str, type(None))
            if isinstance(parameter.default, simple) and parameter.name in mine:
                assert mine[parameter.name] == parameter.default, (name, parameter.name)
