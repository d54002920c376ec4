"""The values that a schema registry stores and returns, at confluent_kafka's names, and their JSON.

Each value has `to_dict` and `from_dict`: the JSON object of the registry's REST API. Members that are None are left
out of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Self

from felice.dataclass import dataclass

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"


def present(members: Mapping[str, object]) -> dict[str, Any]:
    """The members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


class RuleKind(StrEnum):
    """Whether a rule checks data or changes it."""

    CONDITION = "CONDITION"
    TRANSFORM = "TRANSFORM"


class RuleMode(StrEnum):
    """When a rule applies: at writes, reads, or between versions."""

    UPGRADE = "UPGRADE"
    DOWNGRADE = "DOWNGRADE"
    UPDOWN = "UPDOWN"
    READ = "READ"
    WRITE = "WRITE"
    WRITEREAD = "WRITEREAD"


class ConfigCompatibilityLevel(StrEnum):
    """Which versions of a subject must be able to read each other's data."""

    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    NONE = "NONE"


@dataclass(slots=True)
class RuleParams:
    """The parameters of a rule."""

    params: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return dict(self.params)

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object."""
        return cls(dict(src_dict))

    def __hash__(self) -> int:
        return hash(frozenset(self.params.items()))


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of a data contract. Felice stores and returns rules, and does not execute them."""

    name: str | None
    doc: str | None
    kind: RuleKind | None
    mode: RuleMode | None
    type: str | None
    tags: list[str] | None = field(hash=False)
    params: RuleParams | None
    expr: str | None
    on_success: str | None
    on_failure: str | None
    disabled: bool | None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        members: dict[str, object] = {"name": self.name, "doc": self.doc}
        members |= {"kind": None if self.kind is None else self.kind.value}
        members |= {"mode": None if self.mode is None else self.mode.value}
        before = present(members)
        params = None if self.params is None else self.params.to_dict()
        after: dict[str, object] = {"tags": self.tags, "params": params, "expr": self.expr}
        after |= {"onSuccess": self.on_success}
        after |= {"onFailure": self.on_failure, "disabled": self.disabled}
        # confluent_kafka sends `type` even if it is None.
        return before | {"type": self.type} | present(after)

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object. Raises ValueError for an unknown kind or mode."""
        get = src_dict.get
        return cls(
            name=get("name"),
            doc=get("doc"),
            kind=None if get("kind") is None else RuleKind(src_dict["kind"]),
            mode=None if get("mode") is None else RuleMode(src_dict["mode"]),
            type=get("type"),
            tags=get("tags"),
            params=None if get("params") is None else RuleParams.from_dict(src_dict["params"]),
            expr=get("expr"),
            on_success=get("onSuccess"),
            on_failure=get("onFailure"),
            disabled=get("disabled"),
        )


def _rules(given: list[dict[str, Any]] | None) -> list[Rule]:
    return [Rule.from_dict(rule) for rule in given or ()]


def _rule_dicts(rules: list[Rule] | None) -> list[dict[str, Any]] | None:
    return None if rules is None else [rule.to_dict() for rule in rules]


@dataclass(slots=True)
class RuleSet:
    """The rules of a schema: between versions, of the domain, and of the encoded bytes."""

    migration_rules: list[Rule] | None
    domain_rules: list[Rule] | None
    encoding_rules: list[Rule] | None = None
    enable_at: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        members: dict[str, object] = {"migrationRules": _rule_dicts(self.migration_rules)}
        members |= {"domainRules": _rule_dicts(self.domain_rules)}
        members |= {"encodingRules": _rule_dicts(self.encoding_rules), "enableAt": self.enable_at}
        return present(members)

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object."""
        get = src_dict.get
        return cls(
            _rules(get("migrationRules")),
            _rules(get("domainRules")),
            _rules(get("encodingRules")),
            get("enableAt"),
        )

    def __hash__(self) -> int:
        rules = [*(self.migration_rules or ()), *(self.domain_rules or ()), *(self.encoding_rules or ())]
        return hash((frozenset(rules), self.enable_at))


@dataclass(slots=True)
class MetadataTags:
    """Tags by the path of a field."""

    tags: dict[str, list[str]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return dict(self.tags)

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object."""
        return cls(dict(src_dict))

    def __hash__(self) -> int:
        return hash(frozenset((path, tuple(tags)) for path, tags in self.tags.items()))


@dataclass(slots=True)
class MetadataProperties:
    """Properties that an owner gave to a schema."""

    properties: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return dict(self.properties)

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object."""
        return cls(dict(src_dict))

    def __hash__(self) -> int:
        return hash(frozenset(self.properties.items()))


@dataclass(frozen=True, slots=True)
class Metadata:
    """What an owner says about a schema. `sensitive` names properties that must not be shown."""

    tags: MetadataTags | None
    properties: MetadataProperties | None
    sensitive: list[str] | None = field(hash=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        tags = None if self.tags is None else self.tags.to_dict()
        properties = None if self.properties is None else self.properties.to_dict()
        sensitive = None if self.sensitive is None else list(self.sensitive)
        return present({"tags": tags, "properties": properties, "sensitive": sensitive})

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object."""
        tags, properties = src_dict.get("tags"), src_dict.get("properties")
        return cls(
            tags=None if tags is None else MetadataTags.from_dict(tags),
            properties=None if properties is None else MetadataProperties.from_dict(properties),
            sensitive=list(src_dict.get("sensitive") or ()),
        )


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A subject, and the version under which it has a schema."""

    subject: str | None
    version: int | None

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object."""
        return cls(src_dict.get("subject"), src_dict.get("version"))


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another schema uses, by `name`: a type (Avro), a URI (JSON Schema) or a file (Protobuf)."""

    name: str | None
    subject: str | None
    version: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return present({"name": self.name, "subject": self.subject, "version": self.version})

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object."""
        return cls(src_dict.get("name"), src_dict.get("subject"), src_dict.get("version"))


def _metadata(given: Any) -> Metadata | None:
    return None if given is None else Metadata.from_dict(_object(given))


def _rule_set(given: Any) -> RuleSet | None:
    return None if given is None else RuleSet.from_dict(_object(given))


def _object(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise TypeError(f"metadata and rule sets are JSON objects, not {type(given).__name__}")
    return given


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema: its text, its type (AVRO, JSON or PROTOBUF), the schemas that it uses, metadata and rules."""

    schema_str: str | None
    schema_type: str | None = AVRO
    references: list[SchemaReference] | None = field(default_factory=list, hash=False)
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        members: dict[str, object] = {"schema": self.schema_str, "schemaType": self.schema_type}
        members |= {"references": [reference.to_dict() for reference in self.references or ()]}
        members |= {"metadata": None if self.metadata is None else self.metadata.to_dict()}
        members |= {"ruleSet": None if self.rule_set is None else self.rule_set.to_dict()}
        return present(members)

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object; the type is AVRO if it has none. Raises TypeError for members of a wrong type."""
        return cls(
            schema_str=src_dict.get("schema"),
            schema_type=src_dict.get("schemaType", AVRO),
            references=[SchemaReference.from_dict(item) for item in src_dict.get("references") or ()],
            metadata=_metadata(src_dict.get("metadata")),
            rule_set=_rule_set(src_dict.get("ruleSet")),
        )


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A version of a subject: its schema, with the id that messages contain, and the GUID."""

    subject: str | None
    version: int | None
    schema_id: int | None
    guid: str | None
    schema: Schema

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        mine = {"id": self.schema_id, "guid": self.guid, "subject": self.subject, "version": self.version}
        return self.schema.to_dict() | present(mine)

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object."""
        get = src_dict.get
        return cls(get("subject"), get("version"), get("id"), get("guid"), Schema.from_dict(src_dict))


def _level(given: str | None) -> ConfigCompatibilityLevel | None:
    return None if given is None else ConfigCompatibilityLevel(given)


def _plain(value: Metadata | RuleSet | None) -> Any:
    return value.to_dict() if isinstance(value, Metadata | RuleSet) else value


@dataclass(slots=True)
class ServerConfig:
    """The configuration of the registry or of one subject.

    Writes use `compatibility`, and answers to reads `compatibility_level`.
    """

    compatibility: ConfigCompatibilityLevel | None = None
    compatibility_level: ConfigCompatibilityLevel | None = None
    compatibility_group: str | None = None
    default_metadata: Metadata | None = None
    override_metadata: Metadata | None = None
    default_rule_set: RuleSet | None = None
    override_rule_set: RuleSet | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        level, write = self.compatibility_level, self.compatibility
        members: dict[str, object] = {"compatibility": None if write is None else write.value}
        members |= {"compatibilityLevel": None if level is None else level.value}
        members |= {"compatibilityGroup": self.compatibility_group}
        members |= {"defaultMetadata": _plain(self.default_metadata)}
        members |= {"overrideMetadata": _plain(self.override_metadata)}
        members |= {"defaultRuleSet": _plain(self.default_rule_set)}
        return present(members | {"overrideRuleSet": _plain(self.override_rule_set)})

    @classmethod
    def from_dict(cls, src_dict: Mapping[str, Any]) -> Self:
        """Read the JSON object. Raises ValueError for an unknown level."""
        get = src_dict.get
        return cls(
            _level(get("compatibility")),
            _level(get("compatibilityLevel")),
            get("compatibilityGroup"),
            _metadata(get("defaultMetadata")),
            _metadata(get("overrideMetadata")),
            _rule_set(get("defaultRuleSet")),
            _rule_set(get("overrideRuleSet")),
        )
