"""Rules of data contracts. Felice executes none: it refuses data that a rule applies to, and never skips the rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from felice.client.schema_registry.model import Rule, RuleMode, RuleSet, Schema
from felice.client.serialization import SerializationError

_ALSO = {
    RuleMode.WRITE: RuleMode.WRITEREAD,
    RuleMode.READ: RuleMode.WRITEREAD,
    RuleMode.UPGRADE: RuleMode.UPDOWN,
    RuleMode.DOWNGRADE: RuleMode.UPDOWN,
}


def _applies(rule: Rule, mode: RuleMode) -> bool:
    return not rule.disabled and rule.mode in (mode, _ALSO[mode])


def _enabled(rules: RuleSet | None) -> RuleSet | None:
    return rules if rules is not None and rules.enable_at in (None, "ALL", "CLIENT") else None


def refuse_domain_rules(schema: Schema, mode: RuleMode) -> None:
    """Raise `SerializationError` if a rule of this schema applies to objects that are read or written."""
    rules = _enabled(schema.rule_set)
    if rules is not None:
        _refuse(rules.domain_rules or (), mode)


def refuse_encoding_rules(schema: Schema, mode: RuleMode) -> None:
    """Raise `SerializationError` if a rule of this schema applies to the bytes that are read or written."""
    rules = _enabled(schema.rule_set)
    if rules is not None:
        _refuse(rules.encoding_rules or (), mode)


def refuse_migration(schema: Schema, mode: RuleMode) -> None:
    """Raise `SerializationError` if a rule of this schema changes data between its versions."""
    rules = _enabled(schema.rule_set)
    if rules is not None:
        _refuse(rules.migration_rules or (), mode)


def _refuse(rules: Iterable[Rule], mode: RuleMode) -> None:
    for rule in rules:
        if _applies(rule, mode):
            raise SerializationError(
                f"the schema's rule {rule.name!r} (type {rule.type}) applies to this data, "
                "and Felice does not execute rules"
            )


def refuse_rule_arguments(rule_conf: object, rule_registry: object) -> None:
    """Raise ValueError if an application configures rules."""
    if rule_conf or rule_registry is not None:
        raise ValueError("rule_conf and rule_registry are not supported: Felice does not execute rules")


def refuse_validation_rules(conf: dict[str, Any]) -> None:
    """Take the properties of validation rules from `conf`. Raise ValueError if they enable something."""
    execution = conf.pop("validation.rules.execution", "DISABLED")
    conf.pop("validation.rules.fail.fast", None)
    executor = conf.pop("validation.rules.executor", None)
    if getattr(execution, "value", execution) != "DISABLED" or executor is not None:
        raise ValueError("validation.rules.execution must be DISABLED: Felice does not execute rules")
