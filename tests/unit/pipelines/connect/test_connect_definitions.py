"""Definitions of options: values, Kafka's texts for what is wrong, and what a form shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Password,
    Type,
    at_least,
    between,
    java_regex,
    non_empty,
    non_empty_list,
    one_of,
    one_of_any_case,
    parse_value,
)
from felice.pipelines.connect.model.errors import ConfigError

OPTIONS = ConfigDefinitions(
    [
        Definition("name", Type.STRING, validator=non_empty, group="Common"),
        Definition("tasks.max", Type.INT, 1, validator=at_least(1), group="Common"),
        Definition("secret", Type.PASSWORD, None),
        Definition(
            "mode", Type.STRING, "a", validator=one_of("a", "b"), recommender=lambda name, given: ["a", "b"]
        ),
        Definition("topics", Type.LIST, ["x", "y"], group="Topics"),
        Definition("fast", Type.BOOLEAN, False),
    ]
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Type.STRING, " a ", "a"),
        (Type.INT, " -5 ", -5),
        (Type.INT, "2147483647", 2147483647),
        (Type.SHORT, "32767", 32767),
        (Type.LONG, "9223372036854775807", 9223372036854775807),
        (Type.DOUBLE, "1e3", 1000.0),
        (Type.BOOLEAN, "TRUE", True),
        (Type.BOOLEAN, "false", False),
        (Type.LIST, "a, b,c", ["a", "b", "c"]),
        (Type.LIST, " ", []),
        (Type.CLASS, "org.example.C", "org.example.C"),
        (Type.PASSWORD, "s", Password("s")),
        (Type.INT, None, None),
    ],
)
def test_texts_become_values(kind: Type, text: str | None, value: Any) -> None:
    assert parse_value("n", text, kind) == value


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (Type.INT, "x", "Invalid value x for configuration n: Not a number of type INT"),
        (Type.INT, "2147483648", "Invalid value 2147483648 for configuration n: Not a number of type INT"),
        (Type.INT, "1.5", "Invalid value 1.5 for configuration n: Not a number of type INT"),
        (Type.INT, "1_0", "Invalid value 1_0 for configuration n: Not a number of type INT"),
        (Type.SHORT, "32768", "Invalid value 32768 for configuration n: Not a number of type SHORT"),
        (Type.LONG, "9223372036854775808", "Not a number of type LONG"),
        (Type.DOUBLE, "x", "Invalid value x for configuration n: Not a number of type DOUBLE"),
        (
            Type.BOOLEAN,
            "yes",
            "Invalid value yes for configuration n: Expected value to be either true or false",
        ),
    ],
)
def test_texts_that_are_no_values(kind: Type, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse_value("n", text, kind)
    assert str(found.value).endswith(why)


@pytest.mark.parametrize(
    ("check", "value", "why"),
    [
        (at_least(1), 0, "Invalid value 0 for configuration n: Value must be at least 1"),
        (at_least(1), None, "Invalid value null for configuration n: Value must be non-null"),
        (between(1, 5), 6, "Invalid value 6 for configuration n: Value must be no more than 5"),
        (one_of("a", "b"), "A", "Invalid value A for configuration n: String must be one of: a, b"),
        (
            one_of_any_case("none", "all"),
            "some",
            "Invalid value some for configuration n: String must be one of (case insensitive): NONE, ALL",
        ),
        (non_empty, "", "Invalid value  for configuration n: String must be non-empty"),
        (non_empty_list, [], "Invalid value [] for configuration n: Empty list"),
        (java_regex, "(", "Invalid value ( for configuration n: Invalid regex: missing )"),
    ],
)
def test_values_that_a_validator_refuses(check: Any, value: Any, why: str) -> None:
    with pytest.raises(ConfigError) as found:
        check("n", value)
    assert str(found.value).startswith(why)


def test_values_that_validators_accept() -> None:
    for check, value in (
        (at_least(1), 1),
        (between(1, 5), 5),
        (one_of("a"), "a"),
        (one_of_any_case("A"), "a"),
    ):
        check("n", value)
    non_empty("n", None)
    non_empty_list("n", [1])
    java_regex("n", "a+")


def test_all_options_have_values() -> None:
    found = OPTIONS.parse({"name": "n", "secret": "s3", "topics": "z", "unknown": "x"})
    assert found == {
        "name": "n",
        "tasks.max": 1,
        "secret": Password("s3"),
        "mode": "a",
        "topics": ["z"],
        "fast": False,
    }


def test_the_first_error_is_raised() -> None:
    with pytest.raises(
        ConfigError, match='^Missing required configuration "name" which has no default value.$'
    ):
        OPTIONS.parse({"tasks.max": "0"})
    with pytest.raises(
        ConfigError, match="^Invalid value 0 for configuration tasks.max: Value must be at least 1$"
    ):
        OPTIONS.parse({"name": "n", "tasks.max": "0"})


def test_validation_shows_all_errors_and_no_secret() -> None:
    found = {one.name: one for one in OPTIONS.validate({"tasks.max": "0", "secret": "s3", "mode": "c"})}
    assert found["name"].errors == ('Missing required configuration "name" which has no default value.',)
    assert found["name"].value is None
    assert found["tasks.max"].errors == (
        "Invalid value 0 for configuration tasks.max: Value must be at least 1",
    )
    assert found["tasks.max"].value == "0"
    assert found["mode"].errors == ("Invalid value c for configuration mode: String must be one of: a, b",)
    assert found["mode"].recommended_values == ("a", "b")
    assert (found["secret"].value, found["secret"].errors) == ("[hidden]", ())
    assert (found["topics"].value, found["fast"].value) == ("x,y", "false")
    assert "s3" not in repr(found) + repr(Password("s3")) + str(Password("s3"))


def test_a_rule_gets_values_without_the_spaces_around_them() -> None:
    def rule(given: Mapping[str, str]) -> list[tuple[str, str]]:
        return (
            [("secret", "a secret needs fast")] if "secret" in given and given.get("fast") != "true" else []
        )

    ruled = ConfigDefinitions(OPTIONS, rule)
    ruled.parse({"name": "n", "secret": "s", "fast": " true "})
    ruled.parse({"name": "n", "secret": None, "fast": "false"})
    with pytest.raises(ConfigError, match="^a secret needs fast$"):
        ruled.parse({"name": "n", "secret": "s"})
    found = {one.name: one for one in ruled.validate({"name": "n", "secret": "s", "fast": " false "})}
    assert found["secret"].errors == ("a secret needs fast",)


def test_definitions_are_put_together() -> None:
    other = ConfigDefinitions([Definition("field", Type.STRING, dependents=("other",))])
    both = OPTIONS + other.prefixed("transforms.t.", "Transforms: t")
    assert [one.name for one in both][-1] == "transforms.t.field"
    assert both["transforms.t.field"].dependents == ("transforms.t.other",)
    assert both.groups == ["Common", "Topics", "Transforms: t"]
    assert "transforms.t.field" in both and "field" not in both
    with pytest.raises(ValueError, match="option name is defined twice"):
        _ = OPTIONS + OPTIONS
