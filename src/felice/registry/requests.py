"""The bodies of requests: read from JSON, with an error for every wrong shape.

Keeps true:  a member that the registry does not support is refused by name, not ignored. Members that no version of
             Confluent's registry has are ignored, as there.
"""

from __future__ import annotations

from collections.abc import Mapping

from felice.dataclass import dataclass
from felice.registry.content import AVRO
from felice.registry.errors import bad_request, invalid_level, invalid_mode, invalid_schema, unprocessable
from felice.registry.formats.schema import Reference
from felice.registry.records import LEVELS, MAX_VERSION
from felice.registry.rules import Json, Metadata, RuleSet, check_rules, metadata_of, rule_set_of

MAX_REFERENCES = 1_000
"""Limit of the references that one schema names itself."""

NO_ID = -1
NO_VERSION = 0


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """A schema as a client sends it. `version` is 0 and `id` -1 if the client leaves them to the registry; `version` -1
    asks for the next one, and for the version's number in the metadata."""

    text: str
    schema_type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: Metadata | None = None
    rules: RuleSet | None = None
    version: int = NO_VERSION
    id: int = NO_ID


def schema_request(body: Json) -> SchemaRequest:
    """Reads the body of a registration, a look-up or a compatibility check."""
    found = _object(body)
    for name in ("schemaTagsToAdd", "schemaTagsToRemove"):
        if found.get(name):
            raise unprocessable(f"{name} is not supported")
    if found.get("propagateSchemaTags") is True:
        raise unprocessable("propagateSchemaTags is not supported")
    return SchemaRequest(
        _text(found, "schema") or "",
        _text(found, "schemaType") or AVRO,
        _references(found.get("references")),
        metadata_of(found.get("metadata")),
        _checked_rules(found, "ruleSet"),
        _integer(found, "version", NO_VERSION),
        _integer(found, "id", NO_ID),
    )


def config_request(body: Json) -> dict[str, Json]:
    """Reads the body of a change of a configuration: the members that it has. None removes a member.

    `compatibility`, the name in requests, becomes `compatibilityLevel`.
    """
    found = _object(body)
    change: dict[str, Json] = {}
    for name in ("alias", "compatibilityGroup"):
        if name in found:
            change[name] = _text(found, name) or None
    for name in ("normalize", "validateFields", "validateNames"):
        if name in found:
            change[name] = _boolean(found, name)
    if change.get("validateFields"):
        raise unprocessable("validateFields=true is not supported")
    if change.get("validateNames") is False:
        raise unprocessable("validateNames=false is not supported")
    if found.get("compatibilityPolicy") not in (None, "STRICT"):
        raise unprocessable(f"compatibilityPolicy={found['compatibilityPolicy']} is not supported")
    for name in ("compatibility", "compatibilityLevel"):
        if name in found:
            change["compatibilityLevel"] = None if found[name] is None else _level(found[name])
    for name in ("defaultMetadata", "overrideMetadata"):
        if name in found:
            metadata = metadata_of(found[name])
            change[name] = None if metadata is None else metadata.to_json()
    for name in ("defaultRuleSet", "overrideRuleSet"):
        if name in found:
            rules = _checked_rules(found, name)
            change[name] = None if rules is None else rules.to_json()
    return change


def mode_request(body: Json) -> str:
    """Reads the body of a change of a mode."""
    mode = _object(body).get("mode")
    name = mode.upper() if isinstance(mode, str) else ""
    if name not in ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"):
        raise invalid_mode()
    return name


def _level(given: Json) -> str:
    name = given.upper() if isinstance(given, str) else ""
    if name not in LEVELS:
        raise invalid_level()
    return name


def _checked_rules(found: Mapping[str, Json], name: str) -> RuleSet | None:
    rules = rule_set_of(found.get(name))
    check_rules(rules)
    return rules


def _references(given: Json) -> tuple[Reference, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise bad_request("references must be an array")
    if len(given) > MAX_REFERENCES:
        raise invalid_schema(f"a schema has at most {MAX_REFERENCES} references, this one {len(given)}")
    made = []
    for item in given:
        reference = _object(item)
        made.append(
            Reference(
                _required(reference, "name"),
                _required(reference, "subject"),
                _integer(reference, "version", -1),
            )
        )
    return tuple(made)


def _object(body: Json) -> Mapping[str, Json]:
    if not isinstance(body, dict):
        raise bad_request(f"expected a JSON object, got {_kind(body)}")
    return body


def _required(found: Mapping[str, Json], name: str) -> str:
    text = _text(found, name)
    if not text:
        raise invalid_schema(f"a reference needs a {name}")
    return text


def _text(found: Mapping[str, Json], name: str) -> str | None:
    value = found.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_request(f"{name} must be a text, got {_kind(value)}")
    return value


def _boolean(found: Mapping[str, Json], name: str) -> bool | None:
    value = found.get(name)
    if value is not None and not isinstance(value, bool):
        raise bad_request(f"{name} must be true or false, got {_kind(value)}")
    return value


def _integer(found: Mapping[str, Json], name: str, default: int) -> int:
    value = found.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= MAX_VERSION:
        raise bad_request(f"{name} must be a number from -1 to {MAX_VERSION}")
    return value


def _kind(value: Json) -> str:
    kinds = {dict: "an object", list: "an array", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")
