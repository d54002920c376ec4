"""Metadata and rule sets of schemas: read from JSON, merged, written in Confluent's order of members.

Keeps true:  two equal values have one JSON text and one hash, however their members were ordered.
How:         the parts are sorted where Confluent's registry keeps them sorted (tags, properties, sensitive names).
Leaves out:  running rules. Clients run them; the registry stores and returns them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from felice.dataclass import dataclass
from felice.registry.errors import invalid_rules, unprocessable

Json = Any
"""A value that `json` reads: nothing more can be said of its type."""

VERSION_PROPERTY = "confluent:version"
"""The property of metadata that holds the schema's version, if the schema was registered with a version."""

MAX_PARTS = 10_000
"""Limit of the tags, properties and rules of one schema."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a schema says about itself: tags by path, properties, and the names of properties that are secret."""

    tags: tuple[tuple[str, tuple[str, ...]], ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    sensitive: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """The JSON object, without empty members."""
        made: dict[str, Json] = {}
        if self.tags:
            made["tags"] = {path: list(names) for path, names in self.tags}
        if self.properties:
            made["properties"] = dict(self.properties)
        if self.sensitive:
            made["sensitive"] = list(self.sensitive)
        return made

    def property(self, name: str) -> str | None:
        """The value of a property, or None."""
        return dict(self.properties).get(name)

    def hashed(self) -> Iterator[str]:
        """The texts that the schema's guid covers, in order."""
        for path, names in self.tags:
            yield path
            yield from names
        for name, value in self.properties:
            yield name
            yield value
        yield from self.sensitive


def metadata_of(given: Json) -> Metadata | None:
    """Metadata from JSON. Raises `RegistryError` (422) for another shape."""
    if given is None:
        return None
    found = _object(given, "metadata")
    tags = _object(found.get("tags"), "metadata.tags")
    properties = _object(found.get("properties"), "metadata.properties")
    made = Metadata(
        tuple(sorted((path, _names(names, "metadata.tags")) for path, names in tags.items())),
        tuple(sorted((name, _text(value, "metadata.properties")) for name, value in properties.items())),
        _names(found.get("sensitive"), "metadata.sensitive"),
    )
    if len(made.tags) + len(made.properties) + len(made.sensitive) > MAX_PARTS:
        raise unprocessable(f"metadata has more than {MAX_PARTS} entries")
    return made


def merged_metadata(old: Metadata | None, new: Metadata | None) -> Metadata | None:
    """Both, with the entries of `new` where both have one."""
    if old is None or new is None:
        return new if old is None else old
    return Metadata(
        tuple(sorted({**dict(old.tags), **dict(new.tags)}.items())),
        tuple(sorted({**dict(old.properties), **dict(new.properties)}.items())),
        tuple(sorted({*old.sensitive, *new.sensitive})),
    )


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that clients run when they write or read data. `None` and empty members are left out of JSON."""

    name: str
    doc: str | None
    kind: str | None
    mode: str | None
    type: str | None
    tags: tuple[str, ...]
    params: tuple[tuple[str, str], ...]
    expr: str | None
    on_success: str | None
    on_failure: str | None
    disabled: bool

    def to_json(self) -> dict[str, Json]:
        """The JSON object in Confluent's order of members."""
        members: dict[str, Json] = {
            "name": self.name,
            "doc": self.doc,
            "kind": self.kind,
            "mode": self.mode,
            "type": self.type,
            "tags": list(self.tags),
            "params": dict(self.params),
            "expr": self.expr,
            "onSuccess": self.on_success,
            "onFailure": self.on_failure,
            "disabled": self.disabled,
        }
        return {name: value for name, value in members.items() if value not in (None, "", [], {})}

    def hashed(self) -> Iterator[str]:
        """The texts that the schema's guid covers, in order."""
        yield from (
            text for text in (self.name, self.doc, self.kind, self.mode, self.type) if text is not None
        )
        yield from self.tags
        for name, value in self.params:
            yield name
            yield value
        yield from (text for text in (self.expr, self.on_success, self.on_failure) if text is not None)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a schema by what they are for. None means that the member was not given."""

    migration: tuple[Rule, ...] | None = None
    domain: tuple[Rule, ...] | None = None
    encoding: tuple[Rule, ...] | None = None
    enable_only_at: str | None = None

    def to_json(self) -> dict[str, Json]:
        """The JSON object, without empty members."""
        made: dict[str, Json] = {
            name: [rule.to_json() for rule in rules]
            for name, rules in zip(_GROUPS, (self.migration, self.domain, self.encoding), strict=True)
            if rules
        }
        if self.enable_only_at is not None:
            made["enableOnlyAt"] = self.enable_only_at
        return made

    def hashed(self) -> Iterator[str]:
        """The texts that the schema's guid covers, in order."""
        for rules in (self.migration, self.domain, self.encoding):
            for rule in rules or ():
                yield from rule.hashed()


_GROUPS = ("migrationRules", "domainRules", "encodingRules")
_KINDS = ("TRANSFORM", "CONDITION")
_MIGRATION_MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_MODES = (*_MIGRATION_MODES, "WRITE", "READ", "WRITEREAD")
_NAME = re.compile(r"[^\W\d][\w-]*")
_MAX_NAME = 64


def rule_set_of(given: Json) -> RuleSet | None:
    """A rule set from JSON. Raises `RegistryError` (422) for another shape; `check_rules` checks its meaning."""
    if given is None:
        return None
    found = _object(given, "ruleSet")
    enable_only_at = found.get("enableOnlyAt")
    migration, domain, encoding = (_rules(found.get(group), group) for group in _GROUPS)
    return RuleSet(
        migration,
        domain,
        encoding,
        None if enable_only_at is None else _text(enable_only_at, "ruleSet.enableOnlyAt"),
    )


def check_rules(rules: RuleSet | None) -> None:
    """Raises `RegistryError` (42210) for names, kinds or modes that rules cannot have."""
    if rules is None:
        return
    for group, members in zip(_GROUPS, (rules.migration, rules.domain, rules.encoding), strict=True):
        seen: set[str] = set()
        for rule in members or ():
            if rule.name in seen:
                raise invalid_rules(f"Found rule with duplicate name '{rule.name}'")
            seen.add(rule.name)
            _check_rule(rule, group)


def _check_rule(rule: Rule, group: str) -> None:
    if not rule.name:
        raise invalid_rules("Empty rule name")
    if len(rule.name) > _MAX_NAME:
        raise invalid_rules("Rule name too long")
    if _NAME.fullmatch(rule.name) is None:
        raise invalid_rules(f"Illegal character in rule name: {rule.name}")
    if rule.kind is not None and rule.kind not in _KINDS:
        raise invalid_rules(f"Rule '{rule.name}' has the unknown kind {rule.kind}")
    if rule.mode not in _MODES:
        raise invalid_rules(f"Rule '{rule.name}' has the unknown mode {rule.mode}")
    if (group == "migrationRules") != (rule.mode in _MIGRATION_MODES):
        allowed = "can only be" if group == "migrationRules" else "cannot be"
        raise invalid_rules(f"{group} {allowed} UPGRADE, DOWNGRADE, UPDOWN: rule '{rule.name}'")


def merged_rules(old: RuleSet | None, new: RuleSet | None) -> RuleSet | None:
    """Both, without the rules of `old` whose names `new` has too."""
    if old is None or new is None:
        return new if old is None else old
    return RuleSet(
        _merged(old.migration, new.migration),
        _merged(old.domain, new.domain),
        _merged(old.encoding, new.encoding),
        old.enable_only_at if new.enable_only_at is None else new.enable_only_at,
    )


def _merged(old: tuple[Rule, ...] | None, new: tuple[Rule, ...] | None) -> tuple[Rule, ...] | None:
    if old is None or new is None:
        return new if old is None else old
    names = {rule.name for rule in new}
    return (*(rule for rule in old if rule.name not in names), *new)


def _rules(given: Json, where: str) -> tuple[Rule, ...] | None:
    if given is None:
        return None
    if not isinstance(given, list):
        raise unprocessable(f"ruleSet.{where} must be an array")
    if len(given) > MAX_PARTS:
        raise unprocessable(f"ruleSet.{where} has more than {MAX_PARTS} rules")
    return tuple(_rule(item, f"ruleSet.{where}") for item in given)


def _rule(given: Json, where: str) -> Rule:
    found = _object(given, where)
    params = _object(found.get("params"), f"{where}.params")

    def text(name: str) -> str | None:
        value = found.get(name)
        return None if value is None else _text(value, f"{where}.{name}")

    return Rule(
        text("name") or "",
        text("doc"),
        text("kind"),
        text("mode"),
        text("type"),
        _names(found.get("tags"), f"{where}.tags"),
        tuple(sorted((name, _text(value, f"{where}.params")) for name, value in params.items())),
        text("expr"),
        text("onSuccess"),
        text("onFailure"),
        found.get("disabled") is True,
    )


def _object(given: Json, where: str) -> Mapping[str, Json]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise unprocessable(f"{where} must be an object")
    return given


def _names(given: Json, where: str) -> tuple[str, ...]:
    if given is None:
        return ()
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise unprocessable(f"{where} must be an array of texts")
    return tuple(sorted({_text(name, where) for name in given}))


def _text(given: Json, where: str) -> str:
    if not isinstance(given, str):
        raise unprocessable(f"{where} must have texts as values")
    return given
