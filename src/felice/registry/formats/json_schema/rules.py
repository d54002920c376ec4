"""The rules of compatibility as data: each kind of change, whether a reader may have it, and how it is described.

Source:      Confluent's documented rules for JSON Schema; the names of changes and their descriptions are those that
             its registry sends (version 8). A reader's schema may accept more than the writer's, never less.
"""

from __future__ import annotations

from felice.dataclass import dataclass

_KEYWORD = "The keyword at path '{path}' in the {reader} schema is not present in the {writer} schema"
_MORE = "The value at path '{path}' in the {reader} schema is more than its value in the {writer} schema"
_LESS = "The value at path '{path}' in the {reader} schema is less than its value in the {writer} schema"
_OTHER = "The value at path '{path}' is different between the {reader} and {writer} schema"
_FEWER_ELEMENTS = (
    "An array or combined type at path '{path}' has fewer elements in the {reader} schema than the "
    "{writer} schema"
)
_MORE_ELEMENTS = (
    "An array or combined type at path '{path}' has more elements in the {reader} schema than the "
    "{writer} schema"
)
_OTHER_TYPE = "A type at path '{path}' is different between the {reader} schema and the {writer} schema"
_OPEN = (
    "The {reader} schema has an open content model and has a property or item at path '{path}' which is missing in "
    "the {writer} schema"
)
_UNOPEN = (
    "The {reader} schema has an unopen content model and has a required property at path '{path}' which is missing in "
    "the {writer} schema"
)
_CLOSED = (
    "The {reader} schema has a closed content model and is missing a property or item present at path '{path}' in the "
    "{writer} schema"
)
_NOT_COVERED_REMOVED = (
    "A property or item is missing in the {reader} schema but present at path '{path}' in the {writer} schema and is "
    "not covered by its partially open content model"
)
_NOT_COVERED_ADDED = (
    "The {reader} schema has a property or item at path '{path}' which is missing in the {writer} schema and is not "
    "covered by its partially open content model"
)
_NO_TEXT = ""

INCOMPATIBLE: dict[str, str] = {
    "SCHEMA_ADDED": _NO_TEXT,
    "TYPE_NARROWED": _OTHER_TYPE,
    "TYPE_CHANGED": _OTHER_TYPE,
    "PATTERN_ADDED": _KEYWORD,
    "PATTERN_CHANGED": _OTHER,
    "MULTIPLE_OF_ADDED": _KEYWORD,
    "MULTIPLE_OF_EXPANDED": _MORE,
    "MULTIPLE_OF_CHANGED": _OTHER,
    "REQUIRED_ATTRIBUTE_ADDED": _KEYWORD,
    "ADDITIONAL_PROPERTIES_REMOVED": _KEYWORD,
    "ADDITIONAL_PROPERTIES_NARROWED": _FEWER_ELEMENTS,
    "UNEVALUATED_PROPERTIES_REMOVED": _KEYWORD,
    "UNEVALUATED_PROPERTIES_NARROWED": _FEWER_ELEMENTS,
    "DEPENDENCY_ARRAY_ADDED": _KEYWORD,
    "DEPENDENCY_ARRAY_EXTENDED": _MORE_ELEMENTS,
    "DEPENDENCY_ARRAY_CHANGED": _OTHER,
    "DEPENDENCY_SCHEMA_ADDED": _KEYWORD,
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": _UNOPEN,
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": _CLOSED,
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _NOT_COVERED_REMOVED,
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _NOT_COVERED_ADDED,
    "UNIQUE_ITEMS_ADDED": _KEYWORD,
    "ADDITIONAL_ITEMS_REMOVED": _KEYWORD,
    "ADDITIONAL_ITEMS_NARROWED": _FEWER_ELEMENTS,
    "UNEVALUATED_ITEMS_REMOVED": _KEYWORD,
    "UNEVALUATED_ITEMS_NARROWED": _FEWER_ELEMENTS,
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": _OPEN,
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": _CLOSED,
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _NOT_COVERED_REMOVED,
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _NOT_COVERED_ADDED,
    "ENUM_ARRAY_NARROWED": _FEWER_ELEMENTS,
    "ENUM_ARRAY_CHANGED": _OTHER_TYPE,
    "COMBINED_TYPE_CHANGED": _OTHER_TYPE,
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": _OTHER_TYPE,
    "PRODUCT_TYPE_EXTENDED": _MORE_ELEMENTS,
    "SUM_TYPE_NARROWED": _FEWER_ELEMENTS,
    "NOT_TYPE_EXTENDED": _MORE_ELEMENTS,
}
"""The changes that a reader's schema may not have, with their descriptions."""

COMPATIBLE = frozenset(
    (
        "SCHEMA_REMOVED",
        "TYPE_EXTENDED",
        "PATTERN_REMOVED",
        "MULTIPLE_OF_REDUCED",
        "MULTIPLE_OF_REMOVED",
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED",
        "REQUIRED_ATTRIBUTE_REMOVED",
        "ADDITIONAL_PROPERTIES_ADDED",
        "ADDITIONAL_PROPERTIES_EXTENDED",
        "UNEVALUATED_PROPERTIES_ADDED",
        "UNEVALUATED_PROPERTIES_EXTENDED",
        "DEPENDENCY_ARRAY_NARROWED",
        "DEPENDENCY_ARRAY_REMOVED",
        "DEPENDENCY_SCHEMA_REMOVED",
        "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "UNIQUE_ITEMS_REMOVED",
        "ADDITIONAL_ITEMS_ADDED",
        "ADDITIONAL_ITEMS_EXTENDED",
        "UNEVALUATED_ITEMS_ADDED",
        "UNEVALUATED_ITEMS_EXTENDED",
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL",
        "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ENUM_ARRAY_EXTENDED",
        "COMBINED_TYPE_EXTENDED",
        "PRODUCT_TYPE_NARROWED",
        "SUM_TYPE_EXTENDED",
        "NOT_TYPE_NARROWED",
    )
)
"""The changes that a reader's schema may have. They are not reported."""


@dataclass(slots=True, frozen=True)
class Limit:
    """A keyword whose number limits values, from above or below. `name` is that of its changes."""

    keyword: str
    name: str
    is_upper: bool


TEXT_LIMITS = (Limit("maxLength", "MAX_LENGTH", True), Limit("minLength", "MIN_LENGTH", False))
NUMBER_LIMITS = (
    Limit("maximum", "MAXIMUM", True),
    Limit("minimum", "MINIMUM", False),
    Limit("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", True),
    Limit("exclusiveMinimum", "EXCLUSIVE_MINIMUM", False),
)
OBJECT_LIMITS = (
    Limit("maxProperties", "MAX_PROPERTIES", True),
    Limit("minProperties", "MIN_PROPERTIES", False),
)
ARRAY_LIMITS = (
    Limit("maxItems", "MAX_ITEMS", True),
    Limit("minItems", "MIN_ITEMS", False),
    Limit("maxContains", "MAX_CONTAINS", True),
    Limit("minContains", "MIN_CONTAINS", False),
)
LIMITS = TEXT_LIMITS + NUMBER_LIMITS + OBJECT_LIMITS + ARRAY_LIMITS

# A limit may disappear and move away from the values, not appear or move towards them.
INCOMPATIBLE |= {f"{limit.name}_ADDED": _KEYWORD for limit in LIMITS}
INCOMPATIBLE |= {f"{limit.name}_DECREASED": _LESS for limit in LIMITS if limit.is_upper}
INCOMPATIBLE |= {f"{limit.name}_INCREASED": _MORE for limit in LIMITS if not limit.is_upper}
COMPATIBLE |= {f"{limit.name}_REMOVED" for limit in LIMITS}
COMPATIBLE |= {f"{limit.name}_INCREASED" for limit in LIMITS if limit.is_upper}
COMPATIBLE |= {f"{limit.name}_DECREASED" for limit in LIMITS if not limit.is_upper}

assert COMPATIBLE.isdisjoint(INCOMPATIBLE)
