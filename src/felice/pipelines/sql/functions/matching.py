"""Functions of regular expressions. They run in RE2, so that no expression hangs its process.

Leaves out:  look-around, back references and possessive repetitions: a ValueError names them.
"""

from __future__ import annotations

from felice.pipelines.java.patterns import replaced
from felice.pipelines.java.regex import linear
from felice.pipelines.sql.functions.limits import within
from felice.pipelines.sql.functions.table import scalar


@scalar(
    "REGEXP_EXTRACT(pattern STRING, text STRING) -> STRING",
    "The first part of a text that matches; null if there is none.",
    ("REGEXP_EXTRACT('l+', 'hello')", "'ll'"),
)
@scalar(
    "REGEXP_EXTRACT(pattern STRING, text STRING, group INTEGER) -> STRING",
    "A group of the first part of a text that matches; null if there is none.",
    ("REGEXP_EXTRACT('(.*) (.*)', 'hello there', 2)", "'there'"),
)
def extracted(pattern: str, text: str, group: int = 0) -> str | None:
    """None for a group that does not exist. Raises ValueError for a negative one."""
    compiled = linear(pattern)
    if group > compiled.groups:
        return None
    found = compiled.first(text)
    return None if found is None else found.group(_positive(group))


@scalar(
    "REGEXP_EXTRACT_ALL(pattern STRING, text STRING) -> ARRAY<STRING>",
    "All parts of a text that match.",
    ("REGEXP_EXTRACT_ALL('l.', 'hello lot')", "ARRAY['ll', 'lo']"),
)
@scalar(
    "REGEXP_EXTRACT_ALL(pattern STRING, text STRING, group INTEGER) -> ARRAY<STRING>",
    "A group of all parts of a text that match.",
    (r"REGEXP_EXTRACT_ALL('(\w+) (\w+)', 'hello there nice day', 2)", "ARRAY['there', 'day']"),
)
def all_extracted(pattern: str, text: str, group: int = 0) -> list[str | None] | None:
    """None for a group that does not exist. Raises ValueError for a negative one."""
    compiled = linear(pattern)
    if group > compiled.groups:
        return None
    return [found.group(_positive(group)) for found in compiled.matches(text)]


def _positive(group: int) -> int:
    if group < 0:
        raise ValueError(f"a group of a regular expression is 0 or greater, and got {group}")
    return group


@scalar(
    "REGEXP_REPLACE(text STRING, pattern STRING, new STRING) -> STRING",
    "The text with a new part for each part that matches. $1 in it is the first group.",
    ("REGEXP_REPLACE('a1b22', '([0-9]+)', '<$1>')", "'a<1>b<22>'"),
)
def all_replaced(text: str, pattern: str, new: str) -> str:
    """Raises ValueError for a group that does not exist, and for a result that is too long."""
    parts, at, size = list[str](), 0, 0
    for found in linear(pattern).matches(text):
        begin, end = found.span()
        parts += (text[at:begin], replaced(found, new))
        size = within(size + begin - at + len(parts[-1]))
        at = end
    return "".join((*parts, text[at:]))


@scalar(
    "REGEXP_SPLIT_TO_ARRAY(text STRING, pattern STRING) -> ARRAY<STRING>",
    "The parts of a text between those that match. An empty pattern divides all characters.",
    ("REGEXP_SPLIT_TO_ARRAY('a1b22c', '[0-9]+')", "ARRAY['a', 'b', 'c']"),
)
def divided(text: str, pattern: str) -> list[str]:
    """As ksqlDB: of a pattern that matches an empty text, empty parts at the end are left out."""
    compiled = linear(pattern)
    matches_nothing = compiled.first("") is not None
    parts, at = list[str](), 0
    for match in compiled.matches(text):
        begin, end = match.span()
        if not (matches_nothing and begin == end == 0):
            parts.append(text[at:begin])
            at = end
    parts.append(text[at:])
    while matches_nothing and at > 0 and parts and not parts[-1]:
        parts.pop()
    return parts
